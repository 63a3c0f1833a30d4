"""A folder of images of one's own: its layouts, sizes and colours, and what is refused."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile
from PIL import Image


@pytest.fixture
def place(tmp_path):
    """A folder for images; (path, value, mode, size) in ``draw`` writes one."""
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def draw(path, value=0, *, mode="RGB", size=(6, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    bands = len(Image.new(mode, (1, 1)).getbands())
    Image.new(mode, size, (value,) * bands if bands > 1 else value).save(path)


def fill(folder, *, count=6, classes=("cat", "dog"), **options):
    for label, name in enumerate(classes):
        for number in range(count):
            draw(folder / name / f"{number}.png", 10 * number + label, **options)


def load(place, **options):
    return DataFile.of("./own", options, str(place.parent)).load()


def values(images):
    return sorted((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_sub_folders_are_classes_and_a_test_part_is_split_off(place):
    fill(place)
    loaded = load(place)
    assert (loaded.shape, loaded.classes, loaded.class_names) == ((3, 5, 6), 2, ("cat", "dog"))
    assert values(torch.cat([loaded.train_images, loaded.test_images])) == sorted(
        10 * number + label for number in range(6) for label in (0, 1)
    )
    for part in ("train", "test"):
        images, labels = getattr(loaded, f"{part}_images"), getattr(loaded, f"{part}_labels")
        assert ((images[:, 0, 0, 0] * 255).round().int() % 10).tolist() == labels.tolist()
    assert any("2 of 12 samples were split off" in note for note in loaded.notes)


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders_are_the_two_parts(place, test):
    fill(place / "train", count=3)
    draw(place / test / "dog" / "a.png", 7)
    loaded = load(place)
    assert (values(loaded.train_images), values(loaded.test_images)) == ([0, 1, 10, 11, 20, 21], [7])
    assert loaded.test_labels.tolist() == [1]


def test_grey_images_have_one_channel(place):
    fill(place, mode="L")
    assert load(place).shape == (1, 5, 6)
    assert load(place, colour="rgb").shape == (3, 5, 6)


def test_images_of_several_sizes_are_refused_with_the_sizes_and_resized_by_option(place):
    fill(place)
    draw(place / "cat" / "large.jpg", 200, size=(12, 20))
    with pytest.raises(
        ValueError, match=r"own has images of several sizes .*: 12 of 5x6, 1 of 20x12. Set size .* size = 5"
    ):
        load(place)
    loaded = load(place, size=4)
    assert loaded.shape == (3, 4, 4)
    assert any("13 of 13 images were cut" in note for note in loaded.notes)
    assert load(place, size=[5, 6]).shape == (3, 5, 6)


@pytest.mark.parametrize("colour", ["auto", "grey", "rgb"])
def test_images_of_16_bits_are_refused_because_their_conversion_would_cut_at_255(place, colour):
    fill(place, mode="L")
    draw(place / "dog" / "deep.png", 40_000, mode="I;16")
    with pytest.raises(ValueError, match=r"own must have images of 8 bits per channel.*: 1 of mode I;16"):
        load(place, colour=colour)


def test_images_of_several_colours_are_refused_with_their_numbers(place):
    fill(place)
    draw(place / "dog" / "grey.png", 3, mode="L")
    with pytest.raises(
        ValueError, match=r"own has images that are not all grey .*: 12 of mode RGB, 1 of mode L. Set colour"
    ):
        load(place)
    assert load(place, colour="grey").shape == (1, 5, 6)


def test_transparency_is_not_dropped_without_an_option(place):
    fill(place, mode="RGBA")
    with pytest.raises(ValueError, match="12 of mode RGBA"):
        load(place)
    assert load(place, colour="rgb").shape == (3, 5, 6)


def test_other_files_are_skipped_and_counted(place):
    fill(place)
    (place / "cat" / "notes.txt").write_text("none")
    (place / ".hidden").mkdir()
    assert any("1 file that is no image was skipped" in note for note in load(place).notes)


@pytest.mark.parametrize("content", [b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n"])
def test_a_damaged_image_and_a_format_that_runs_a_program_are_refused_by_name(place, content):
    fill(place)
    (place / "cat" / "wrong.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"wrong.png cannot be read as an image: it is damaged or of another format"):
        load(place)


def test_an_image_that_ends_early_is_refused_by_name(place):
    fill(place)
    noise = np.random.default_rng(0).integers(256, size=(5, 6, 3), dtype=np.uint8)
    Image.fromarray(noise).save(place / "cat" / "short.png")
    whole = (place / "cat" / "short.png").read_bytes()
    (place / "cat" / "short.png").write_bytes(whole[:80])
    with pytest.raises(ValueError, match=r"short.png cannot be read as an image"):
        load(place)


def test_an_empty_class_and_a_single_class_are_refused(place):
    fill(place, classes=("cat",))
    with pytest.raises(ValueError, match="own must have one sub-folder for each of at least two classes, got cat"):
        load(place)
    (place / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog must hold at least one image"):
        load(place)


def test_a_class_of_the_test_part_must_be_known(place):
    fill(place / "train")
    fill(place / "test", classes=("cat", "cow"))
    with pytest.raises(ValueError, match=r"test has a class 'cow' that .*train does not have: cat, dog"):
        load(place)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 0}, "size must be a whole number >= 1, got 0"),
        ({"size": [3]}, r"size must be one number or \[height, width\], got \[3\]"),
        ({"colour": "green"}, "colour must be .*, got 'green'"),
        ({"color": "grey"}, "a folder of images has no option 'color'; it has colour"),
        ({"size": 100_000}, "own would need 1440.0 GB"),
    ],
)
def test_options_are_checked(place, options, says):
    fill(place)
    with pytest.raises(ValueError, match=says):
        load(place, **options)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("{owner}_{number}.png", "^[a-z]+"),
        ("{owner}/{number}.png", "^([^/]+)/"),
        ("scan{number}-{owner}.png", r"-(\w+)"),
    ],
)
def test_owners_are_found_in_file_names_and_in_folders(place, name, pattern):
    for label in ("cat", "dog"):
        for number in range(12):
            draw(place / label / name.format(owner="abcdef"[number // 2], number=number), number)
    loaded = load(place, owner=pattern)
    # An owner has two images of each class, all in one part; one of the six owners is the test part.
    assert sorted(loaded.train_owners.bincount().tolist()) == [4] * 5
    assert len(loaded.test_labels) == 4
    by_owner = {
        int(owner): {
            v
            for v, o in zip(
                loaded.train_images[:, 0, 0, 0].mul(255).round().int().tolist(),
                loaded.train_owners.tolist(),
                strict=True,
            )
            if o == owner
        }
        for owner in loaded.train_owners
    }
    assert all(max(values) // 2 == min(values) // 2 for values in by_owner.values())


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("^x", r"0.png: owner = '\^x' finds no owner in '0.png'"),
        ("(", r"owner must be a regular expression, got '\('"),
        (3, "owner must be a regular expression, got 3"),
    ],
)
def test_an_owner_that_cannot_be_found_is_an_error(place, pattern, message):
    fill(place)
    with pytest.raises(ValueError, match=message):
        load(place, owner=pattern)


def test_turned_photos_animations_and_classes_without_a_test_sample_are_reported(place):
    fill(place / "train", count=3, mode="L")
    draw(place / "test" / "dog" / "a.png", 7, mode="L")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (6, 5)).save(place / "train" / "cat" / "photo.jpg", exif=exif)
    frames = [Image.new("L", (6, 5), shade) for shade in (0, 99)]
    frames[0].save(place / "train" / "cat" / "moving.gif", save_all=True, append_images=frames[1:])
    (place / "train" / "cat" / "notes.txt").write_text("x")
    notes = load(place, colour="grey").notes
    assert any("1 of 9 images was not turned upright" in note for note in notes)
    assert any("1 of 9 images was the first of several in the file" in note for note in notes)
    assert any("test has no folder for the classes cat, which have no test sample" in note for note in notes)
    assert any("1 file that is no image was skipped" in note for note in notes)


def test_upright_photos_have_no_such_note(place):
    fill(place)
    assert len(load(place).notes) == 1
