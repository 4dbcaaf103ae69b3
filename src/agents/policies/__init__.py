"""Policies map observations to actions, with exploration, masks and export."""
