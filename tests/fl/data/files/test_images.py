"""A folder of images of one's own: its layouts, sizes, colours and depths, and what is refused."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile
from PIL import Image


@pytest.fixture
def place(tmp_path):
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


def values(images, top=255):
    return sorted((images[:, 0, 0, 0] * top).round().int().tolist())


def both(loaded):
    return torch.cat([loaded.train_images, loaded.test_images])


def test_sub_folders_are_classes_and_a_test_part_is_split_off(place):
    fill(place)
    (place / "cat" / "notes.txt").write_text("none")
    (place / ".hidden").mkdir()
    loaded = load(place)
    assert (loaded.shape, loaded.classes, loaded.class_names) == ((3, 5, 6), 2, ("cat", "dog"))
    assert values(both(loaded)) == sorted(10 * number + label for number in range(6) for label in (0, 1))
    for part in ("train", "test"):
        images, labels = getattr(loaded, f"{part}_images"), getattr(loaded, f"{part}_labels")
        assert ((images[:, 0, 0, 0] * 255).round().int() % 10).tolist() == labels.tolist()
    assert any("2 of 12 samples were split off" in note for note in loaded.notes)
    assert any("1 file skipped" in note for note in loaded.notes)


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders_are_the_two_parts(place, test):
    fill(place / "train", count=3)
    draw(place / test / "dog" / "a.png", 7)
    loaded = load(place)
    assert (values(loaded.train_images), values(loaded.test_images)) == ([0, 1, 10, 11, 20, 21], [7])
    assert loaded.test_labels.tolist() == [1]
    assert "Classes without a test sample: cat." in loaded.notes
    fill(place / test, classes=("cat", "cow"))
    with pytest.raises(ValueError, match=r"has a class 'cow' that the training part lacks: cat, dog"):
        load(place)


def test_images_of_several_sizes_or_colours_are_refused_and_converted_by_option(place):
    fill(place)
    draw(place / "cat" / "large.jpg", 200, size=(12, 20))
    with pytest.raises(
        ValueError, match=r"own has images of 2 sizes .*: .*12 of 5x6, 1 of 20x12. Set size .* size = 5|"
    ):
        load(place)
    loaded = load(place, size=4)
    assert loaded.shape == (3, 4, 4)
    assert any("13 of 13 images were cut" in note for note in loaded.notes)
    assert load(place, size=[5, 6], colour="grey").shape == (1, 5, 6)
    draw(place / "dog" / "grey.png", 3, mode="L")
    with pytest.raises(ValueError, match=r"not all grey or all RGB: 13 of mode RGB, 1 of mode L. Set colour"):
        load(place, size=4)


def test_transparency_is_not_dropped_without_an_option(place):
    fill(place, mode="RGBA")
    with pytest.raises(ValueError, match="12 of mode RGBA"):
        load(place)
    assert load(place, colour="rgb").shape == (3, 5, 6)


@pytest.mark.parametrize(("top", "step"), [(4095, 370), (65535, 5900)])
def test_grey_images_of_12_and_16_bits_are_divided_by_their_largest_value(place, top, step):
    for label, name in enumerate(("cat", "dog")):
        for number in range(6):
            (place / name).mkdir(exist_ok=True)
            shade = np.full((5, 6), step * (2 * number + label), dtype=np.uint16)
            Image.fromarray(shade).save(place / name / f"{number}.png")
    loaded = load(place)
    assert values(both(loaded), top) == [step * number for number in range(12)]
    assert any(f"divided by {top}" in note for note in loaded.notes)
    assert values(both(load(place, size=3)), top) == [step * number for number in range(12)]
    with pytest.raises(ValueError, match="more than 8 bits"):
        load(place, colour="rgb")
    draw(place / "dog" / "plain.png", 3, mode="L")
    with pytest.raises(ValueError, match=r"own has grey values of more than 8 bits among other images.*1 of mode L"):
        load(place)


@pytest.mark.parametrize("content", [b"no image", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", None])
def test_a_damaged_image_and_a_format_that_runs_a_program_are_refused_by_name(place, content):
    fill(place)
    if content is None:
        noise = np.random.default_rng(0).integers(256, size=(5, 6, 3), dtype=np.uint8)
        Image.fromarray(noise).save(place / "cat" / "wrong.png")
        content = (place / "cat" / "wrong.png").read_bytes()[:80]
    (place / "cat" / "wrong.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"wrong.png cannot be read as an image"):
        load(place)


def test_an_empty_class_and_a_single_class_are_refused(place):
    fill(place, classes=("cat",))
    with pytest.raises(ValueError, match="own must have one sub-folder for each of at least two classes, got cat"):
        load(place)
    (place / "dog").mkdir()
    with pytest.raises(ValueError, match=r"dog must hold at least one image"):
        load(place)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 0}, "own: option size.*got 0"),
        ({"colour": "green"}, "option colour.*got 'green'"),
        ({"size": 100_000}, "own would need 5760.0 GB"),
        ({"owner": "^x"}, r"0.png: owner = '\^x' finds no owner in '0.png'"),
        ({"owner": "("}, r"option owner: must be a regular expression"),
    ],
)
def test_options_are_checked(place, options, says):
    fill(place)
    with pytest.raises(ValueError, match=says):
        load(place, **options)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("{owner}_{number}.png", "^[a-z]+"), ("{owner}/{number}.png", "^([^/]+)/"), ("s{number}-{owner}.png", r"-(\w+)")],
)
def test_owners_are_found_in_file_names_and_in_folders(place, name, pattern):
    for label in ("cat", "dog"):
        for number in range(12):
            draw(place / label / name.format(owner="abcdef"[number // 2], number=number), number)
    loaded = load(place, owner=pattern)
    # An owner has two images of each class, all in one part; one of the six owners is the test part.
    assert loaded.train_owners.bincount().tolist() == [4] * 5
    shades = (loaded.train_images[:, 0, 0, 0] * 255).round().int() // 2
    for owner in range(5):
        assert len(shades[loaded.train_owners == owner].unique()) == 1


def test_turned_photos_and_animations_are_reported(place):
    fill(place, mode="L")
    before = load(place).notes
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (6, 5)).save(place / "cat" / "photo.jpg", exif=exif)
    frames = [Image.new("L", (6, 5), shade) for shade in (0, 99)]
    frames[0].save(place / "cat" / "moving.gif", save_all=True, append_images=frames[1:])
    notes = load(place, colour="grey").notes
    for words in ("1 of 14 images were not turned upright", "1 of 14 images were the first of several in the file"):
        assert any(words in note for note in notes)
        assert not any(words[8:] in note for note in before)
