"""The order of a report is the suite file's, whatever else in it is named alike."""

from fedassay.reports.reading.run_folder import Order


def ordered(made, suite, labels):
    made.manifest["suite"] = suite
    for label in labels:
        made.row(defense=label)
    return Order.of(made.write()).defenses


def test_a_suite_named_like_a_defense_does_not_move_it(run_maker):
    suite = {"name": "mine", "defenses": {"none": {}, "mine": {"part": "my_defense:Mine"}}}
    assert ordered(run_maker, suite, ["mine", "none"]) == ("none", "mine")


def test_a_part_that_another_label_uses_does_not_move_it(run_maker):
    suite = {"name": "x", "defenses": {"other": {"part": "none"}, "first": {}, "none": {}}}
    assert ordered(run_maker, suite, ["none", "first", "other"]) == ("other", "first", "none")


def test_labels_that_the_suite_does_not_name_come_last(run_maker):
    assert ordered(run_maker, {"name": "x", "defenses": {"b": {}}}, ["a", "c", "b"]) == ("b", "a", "c")
