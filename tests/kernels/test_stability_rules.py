"""Properties of the stability rules that backends rely on."""

from packing_env.kernels import stability_rules as rules


def test_rules_are_monotone() -> None:
    """Therefore, backends may skip the hull where a rule holds without it."""
    for name, rule in rules.RULES.items():
        for corners in range(5):
            for touching in (False, True):
                verdicts = [
                    bool(rule.formula(rules.Support(count, limits, corners, touching, in_hull, 40)))
                    for in_hull in (False, True)
                    for limits in [tuple(rules.limit(40, percent) for percent in rule.percents)]
                    for count in range(41)
                ]
                assert verdicts == sorted(verdicts[:41]) + sorted(verdicts[41:]), name
                assert all(a <= b for a, b in zip(verdicts[:41], verdicts[41:], strict=True)), name
