import itertools

import pytest
from fedassay.audit.observer import AGGREGATE, ANSWERS, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer

LADDER = [FINAL_MODEL, GLOBAL_MODELS, AGGREGATE, SHUFFLED, UPLOADS]


def test_a_claim_covers_those_who_see_no_more():
    for mine, other in itertools.product(LADDER, LADDER):
        assert mine.covers(other) == (other.rank <= mine.rank)


def test_of_a_transfer_by_answers_the_student_sees_more_than_its_model_and_less_than_every_teachers_answers():
    transfer = [FINAL_MODEL, ANSWERS, UPLOADS]
    for mine, other in itertools.product(range(3), range(3)):
        assert transfer[mine].covers(transfer[other]) == (other <= mine)
    # No such student exists where clients train in rounds, so neither claim says anything about the other's observer.
    for other in (GLOBAL_MODELS, AGGREGATE, SHUFFLED):
        assert not ANSWERS.covers(other)
        assert not other.covers(ANSWERS)
    assert Observer.parse("answers") == ANSWERS


def test_a_claim_that_hides_participation_does_not_cover_evidence_that_used_it():
    participation = Observer("global_models", sees_participation=True)
    assert participation.covers(GLOBAL_MODELS)
    assert not GLOBAL_MODELS.covers(participation)
    assert not UPLOADS.covers(participation)
    assert Observer("uploads", sees_participation=True, sees_masked_words=True).covers(participation)


def test_parse_is_the_inverse_of_str():
    for name, participation, words in itertools.product(LADDER, (False, True), (False, True)):
        observer = Observer(name.name, sees_participation=participation, sees_masked_words=words)
        assert Observer.parse(str(observer)) == observer
    assert Observer.parse("uploads+participation") == Observer("uploads", sees_participation=True)
    assert str(Observer("uploads", sees_participation=True, sees_masked_words=True)) == (
        "uploads+participation+masked_words"
    )


def test_an_unknown_name_lists_the_known_ones_nearest_first():
    with pytest.raises(ValueError, match=r"observer must be uploads, .*, got 'upload'"):
        Observer.parse("upload")
    with pytest.raises(ValueError, match=r"flag must be participation or masked_words, got 'participants'"):
        Observer.parse("uploads+participants")
