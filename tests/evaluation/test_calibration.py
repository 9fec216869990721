"""Calibration: chances that hold where the true ones are known, in galleries of other sizes, for unknown queries."""

import json

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tests.reference.open_world import World, draw_world, exact_chances

from tophit.evaluation import calibrate
from tophit.evaluation.calibration import Calibration, TooFewClassesError, told
from tophit.evaluation.calibration_check import Told, auroc, check_told
from tophit.evaluation.calibration_features import DEPTH, background, class_features, vote_shares
from tophit.evaluation.chance_curve import logistic_regression, rising_curve
from tophit.evaluation.ranked_lists import Labelled, draw_lists

UNKNOWN = 0.2


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    world = draw_world(classes=300, per_class=8, seed=1)
    return calibrate(world.vectors, world.labels, unknown=UNKNOWN)


def searched(world: World, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Search by cosine, one literal query after another: queries, whether known, scores and labels of the results."""
    generator = np.random.default_rng(seed)
    units = world.vectors / np.linalg.norm(world.vectors, axis=1, keepdims=True)
    asked = generator.choice(len(units), queries, replace=False)
    known = generator.random(queries) >= UNKNOWN
    scores, labels = np.full((queries, DEPTH), np.nan), np.full((queries, DEPTH), -1)
    for row, (query, there) in enumerate(zip(asked, known, strict=True)):
        near = units @ units[query]
        allowed = np.arange(len(units)) != query
        if not there:
            allowed &= world.labels != world.labels[query]
        order = np.argsort(-near)
        best = order[allowed[order]][:DEPTH]
        scores[row, : len(best)], labels[row, : len(best)] = near[best], world.labels[best]
    return asked, known, scores, labels


def exact(world: World, asked: np.ndarray, known: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the true chance of each of the first ten results."""
    rows = [exact_chances(world, query, there, UNKNOWN) for query, there in zip(asked, known, strict=True)]
    return np.stack([row[labels[number, :10]] for number, row in enumerate(rows)])


def told_and_true(
    calibration: Calibration, classes: int, seeds: tuple[int, ...], queries: int, labelled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return what is told about the first ten results in several worlds, by labels or by scores, and the truth."""
    told_, true = [], []
    for seed in seeds:
        world = draw_world(classes=classes, per_class=8, seed=seed)
        asked, known, scores, labels = searched(world, queries, seed + 1)
        told_.append(calibration.chances(scores, len(world.labels) - 1, labels=labels if labelled else None)[:, :10])
        true.append(exact(world, asked, known, labels))
    return np.concatenate(told_), np.concatenate(true)


def assert_holds(chances: np.ndarray, true: np.ndarray, tolerance: float) -> None:
    """Compare told with true chances, in tenths that have results."""
    compared = 0
    for low in np.arange(0.05, 0.95, 0.1):
        some = (chances >= low) & (chances < low + 0.1)
        if some.sum() >= 100:
            assert abs(chances[some].mean() - true[some].mean()) < tolerance, (low, some.sum(), true[some].mean())
            compared += 1
    assert compared >= 5


@pytest.mark.parametrize("labelled", [True, False])
def test_chances_told_are_the_true_ones_on_new_classes(calibration: Calibration, labelled: bool) -> None:
    chances, true = told_and_true(calibration, 300, (2, 22, 42), 1000, labelled)
    assert_holds(chances, true, 0.08 if labelled else 0.06)  # all results of a label are one case
    near_90 = (chances >= 0.85) & (chances < 0.95)
    assert near_90.sum() > 600
    assert abs(chances[near_90].mean() - true[near_90].mean()) < 0.03


@pytest.mark.parametrize("labelled", [True, False])
def test_chances_follow_the_size_of_the_gallery(calibration: Calibration, labelled: bool) -> None:
    """A third of the classes: nearly every result is likelier, which a calibration by scores alone would not know."""
    assert_holds(*told_and_true(calibration, 100, (4, 24, 44), 500, labelled), 0.1)


def test_names_are_right_as_often_as_told(calibration: Calibration) -> None:
    told_, true = [], []
    for seed in (6, 26, 46):
        world = draw_world(classes=300, per_class=8, seed=seed)
        asked, known, scores, labels = searched(world, 700, seed + 1)
        of_labels = calibration.label_chances(scores, labels, len(world.labels) - 1)
        names = labels[np.arange(len(labels)), of_labels.argmax(axis=1)]
        told_.append(of_labels.max(axis=1))
        rows = zip(asked, known, names, strict=True)
        true.append([exact_chances(world, query, there, UNKNOWN)[name] for query, there, name in rows])
    chances, exactly = np.concatenate(told_), np.concatenate(true)
    for low in (0.1, 0.3, 0.5, 0.7):
        some = (chances >= low) & (chances < low + 0.2)
        assert some.sum() > 50
        assert abs(chances[some].mean() - exactly[some].mean()) < 0.07


def test_the_check_is_made_on_classes_that_did_not_calibrate() -> None:
    """Labels without meaning teach chances that hold nowhere; a check on the same classes would not notice."""
    generator = np.random.default_rng(0)
    noise = calibrate(generator.normal(size=(240, 6)), np.repeat(np.arange(30), 8), unknown=0)
    assert max(row["told"] for row in noise.check.reliability) < 0.2


def test_few_classes_claim_less(calibration: Calibration) -> None:
    few = draw_world(classes=10, per_class=8, spread=0.2, seed=8)
    made = calibrate(few.vectors, few.labels, unknown=0)
    assert made.is_rough
    assert not calibration.is_rough
    assert made.model.by_labels.values.max() < 0.96, "ten classes can't tell that 96 of 100 results are right"


def test_very_few_classes_don_t_tell_a_label_more_than_its_best_score() -> None:
    few, world = (draw_world(classes=count, per_class=8, seed=19) for count in (10, 200))
    made = calibrate(few.vectors, few.labels)
    _, _, scores, labels = searched(world, 100, 20)
    told_, by_scores = made.chances(scores, 1599, labels=labels), made.chances(scores, 1599)
    for row, names, best in zip(told_, labels, by_scores, strict=True):
        assert all(row[names == name].max() <= best[names == name].max() for name in np.unique(names))
    read = Calibration.from_json(json.loads(json.dumps(made.to_json())))
    np.testing.assert_array_equal(read.chances(scores, 1599, labels=labels), told_)


def test_too_few_classes_are_refused() -> None:
    world = draw_world(classes=7, per_class=5)
    with pytest.raises(TooFewClassesError, match="at least 8 classes with something to find, not 7"):
        calibrate(world.vectors, world.labels)


@pytest.mark.parametrize("unknown", [-0.1, 1.0])
def test_a_wrong_share_of_unknown_queries_is_refused(unknown: float) -> None:
    world = draw_world(classes=8, per_class=3)
    with pytest.raises(ValueError, match="share of unknown queries"):
        calibrate(world.vectors, world.labels, unknown=unknown)


def test_more_unknown_queries_lower_the_chances() -> None:
    world, new = (draw_world(classes=80, per_class=6, spread=0.8, seed=seed) for seed in (9, 14))
    _, _, scores, _ = searched(new, 200, 0)
    few, many = (calibrate(world.vectors, world.labels, unknown=share).chances(scores, 479) for share in (0.0, 0.6))
    assert many[:, :5].mean() < 0.6 * few[:, :5].mean()


def test_no_result_is_told_more_than_one_before_it(calibration: Calibration) -> None:
    scores = np.sort(np.random.default_rng(1).uniform(-1, 1, (200, DEPTH)))[:, ::-1]
    scores[:50, 7:] = np.nan
    chances = calibration.chances(scores, 2400)
    assert (np.diff(chances, axis=1) <= 1e-12).all()
    assert (chances[:50, 7:] == 0).all()
    assert ((chances >= 0) & (chances <= 1)).all()


def test_results_and_names_are_told_by_one_model(calibration: Calibration) -> None:
    """All results of a label have its chance, so the name's chance is the highest of them."""
    world = draw_world(classes=40, per_class=8, seed=15)
    _, _, scores, labels = searched(world, 60, 16)
    chances = calibration.chances(scores, 319, labels=labels)
    np.testing.assert_array_equal(chances, calibration.label_chances(scores, labels, 319))
    for row, names in zip(chances, labels, strict=True):
        assert all(len(set(row[names == name])) == 1 for name in np.unique(names))
    some = np.where(np.arange(labels.shape[1]) % 3 == 0, -1, labels)
    mixed = calibration.chances(scores, 319, labels=some)
    np.testing.assert_array_equal(mixed[some < 0], calibration.chances(scores, 319)[some < 0])
    assert (calibration.label_chances(scores, some, 319)[some < 0] == 0).all()


@pytest.mark.parametrize("labelled", [True, False])
def test_a_picture_of_nothing_known_is_told_little(calibration: Calibration, labelled: bool) -> None:
    """The same lists, but farther away than any right first result was: differences of scores alone can't tell."""
    world = draw_world(classes=300, per_class=8, seed=17)
    _, known, scores, labels = searched(world, 300, 18)
    near = calibration.chances(scores, 2399, labels=labels if labelled else None)[known, 0]
    far = calibration.chances(scores - 0.5, 2399, labels=labels if labelled else None)[known, 0]
    assert near.mean() > 0.4
    assert far.max() < 0.1
    assert calibration.label_chances(scores - 0.5, labels, 2399).max() < 0.1


def test_a_file_of_an_earlier_version_tells_what_it_told(calibration: Calibration) -> None:
    """It has no scores of right results, told results by scores alone, and was not lowered for far pictures."""
    fields = json.loads(json.dumps(calibration.to_json()))
    del fields["right_scores"], fields["check"]["by_scores"]
    old = Calibration.from_json(fields)
    assert old.is_old
    assert not calibration.is_old
    world = draw_world(classes=40, per_class=8, seed=15)
    _, _, scores, labels = searched(world, 60, 16)
    by_scores = old.chances(scores, 319)
    np.testing.assert_array_equal(old.chances(scores, 319, labels=labels), by_scores)
    assert (by_scores >= calibration.chances(scores, 319)).all()
    assert old.label_chances(scores - 0.5, labels, 319).max() > 0.1


def test_it_survives_a_file(calibration: Calibration) -> None:
    read = Calibration.from_json(json.loads(json.dumps(calibration.to_json())))
    scores = np.sort(np.random.default_rng(2).uniform(0, 1, (20, DEPTH)))[:, ::-1]
    np.testing.assert_array_equal(read.chances(scores, 100), calibration.chances(scores, 100))
    assert read.check == calibration.check


def test_queries_and_a_gallery_apart() -> None:
    """Queries that are items of the gallery must not find themselves."""
    world = draw_world(classes=40, per_class=6, spread=1.2, seed=10)
    some = np.arange(0, 240, 2)
    arguments = (world.vectors[some], world.labels[some], world.vectors, world.labels)
    assert calibrate(*arguments, some).items == 240
    lists = draw_lists(Labelled.of(*arguments, some), 0.0, np.random.default_rng(0))
    found_itself = draw_lists(Labelled.of(*arguments), 0.0, np.random.default_rng(0))
    assert lists is not None
    assert found_itself is not None
    assert np.nanmax(lists.scores) < 1 - 1e-6 < np.nanmin(found_itself.scores[:, 0])
    apart = calibrate(world.vectors[some], world.labels[some], world.vectors[1::2], world.labels[1::2])
    assert apart.items == 120


def test_lists_leave_out_the_query_and_the_class_of_an_unknown_one() -> None:
    world = draw_world(classes=12, per_class=5, seed=11)
    lists = draw_lists(Labelled.of(world.vectors, world.labels), 0.5, np.random.default_rng(0))
    assert lists is not None
    assert np.nanmax(lists.scores) < 1 - 1e-6
    assert 0.2 < lists.known.mean() < 0.8
    found = lists.labels == lists.classes[:, None]
    assert not found[~lists.known].any()
    assert (found[lists.known].sum(axis=1) == 4).all()


def test_galleries_of_few_items_a_class() -> None:
    world = draw_world(classes=20, per_class=9, seed=12)
    lists = draw_lists(Labelled.of(world.vectors, world.labels), 0.0, np.random.default_rng(0), 0.5, 3)
    assert lists is not None
    assert lists.items == 30
    assert lists.per_class == 3
    assert set(lists.right.sum(axis=1)) <= {2, 3}, "three, or two if the query is one of them"


def test_the_background_of_long_and_short_lists() -> None:
    scores = np.full((2, DEPTH), np.nan)
    scores[0] = np.linspace(1, 0, DEPTH)
    scores[1, :4] = [0.9, 0.8, 0.3, 0.1]
    np.testing.assert_allclose(background(scores)[:, 0], [scores[0, 50:].mean(), 0.2])


def test_votes_weigh_what_is_above_the_background() -> None:
    scores = np.array([[0.9, 0.85, 0.84, 0.1, 0.1, 0.1]])  # the background is 0.1
    (shares,) = vote_shares(scores, np.array([[7, 3, 3, 5, 5, 5]]))
    own, other = 0.75**4 + 0.74**4, 0.8**4
    np.testing.assert_allclose(shares, np.array([other, own, own, 0, 0, 0]) / (own + other), atol=1e-9)
    assert (vote_shares(scores, np.full((1, 6), -1)) == 0).all()
    far = np.array([[0.9, 0.5, 0.5, 0.5, 0.5, 0.5, *np.zeros(8)]])
    shares = vote_shares(far, np.array([[7, *[3] * 5, *[-1] * 8]]))[0]
    assert shares[0] > shares[1], "many that are far don't outvote one that is near"


def test_what_is_known_about_labels_against_a_loop() -> None:
    generator = np.random.default_rng(6)
    scores = np.sort(generator.uniform(0, 1, (30, 40)))[:, ::-1]
    labels = generator.integers(-1, 6, (30, 40))
    labels[0] = 2  # nothing else was found
    found, shares = class_features(scores, labels, 200, 5.0), vote_shares(scores, labels)
    for query in range(30):
        level = background(scores)[query, 0]
        for place in range(40):
            own = scores[query][labels[query] == labels[query, place]].max()
            other = scores[query][labels[query] != labels[query, place]].max(initial=-1)
            above = own - (level if other < 0 else other)
            wanted = [own, own - level, above, shares[query, place], np.log(40), np.log(5)]
            np.testing.assert_allclose(found[query, place], wanted)


def test_logistic_regression_against_scikit_learn() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(400, 4)) * [1, 5, 0.1, 2] + [0, 3, 1, -1]
    right = generator.random(400) < 1 / (1 + np.exp(-(rows[:, 0] - 0.3 * rows[:, 1])))
    weights, intercept = logistic_regression(rows, right)
    theirs = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000)
    scaled = (rows - rows.mean(0)) / rows.std(0)
    theirs.fit(scaled, right)
    np.testing.assert_allclose(rows @ weights + intercept, theirs.decision_function(scaled), atol=1e-4)


def test_the_curve_is_near_one_isotonic_regression() -> None:
    generator = np.random.default_rng(4)
    sums = generator.normal(size=6000)
    right = generator.random(6000) < 1 / (1 + np.exp(-2 * sums))
    knots, values = rising_curve(sums, right, np.repeat(np.arange(600), 10), 0)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(sums, right).predict(knots)
    assert np.abs(values - theirs)[2:-2].max() < 0.06
    assert (np.diff(values) >= 0).all()


def test_auroc_against_scikit_learn_and_its_interval() -> None:
    generator = np.random.default_rng(5)
    values, known = generator.integers(0, 30, 500) / 30.0, generator.random(500) < 0.7
    values += 0.2 * known
    found, low, high = auroc(values, known, generator.integers(0, 40, 500))
    assert found == pytest.approx(roc_auc_score(known, values))
    assert low < found < high
    assert high - low < 0.2


def test_what_cut_offs_cost_by_hand() -> None:
    chances = np.array([[0.9, 0.4], [0.6, 0.2]])
    right = np.array([[True, True], [False, False]])
    check = check_told(
        Told(chances, right, np.array([0.9, 0.6]), np.array([True, False]), np.array([True, False]), np.array([0, 1]))
    )
    at = {row["chance"]: row for row in check.cut_offs}
    assert (at[0.0]["kept"], at[0.5]["kept"]) == (1.0, 0.5)
    assert (at[0.0]["right"], at[0.5]["right"], at[0.7]["right"]) == (0.5, 0.5, 1.0)
    assert check.open_set["accuracy"][0] == 1.0
    assert check.open_set["unknown_told"][0] == 0.0
    assert check.open_set["auroc"][0] == 1.0


def test_told_of_new_searches(calibration: Calibration) -> None:
    world = draw_world(classes=100, per_class=8, seed=13)
    lists = draw_lists(Labelled.of(world.vectors, world.labels), UNKNOWN, np.random.default_rng(1))
    assert lists is not None
    found = told(calibration, lists)
    assert found.chances.shape == lists.scores.shape
    assert not found.name_right[~found.known].any()
    assert check_told(found).open_set["auroc"][0] > 0.6
