"""Layout: a vector is its layers, in order, and nothing else."""

import pytest
import torch
from fedassay.fl.layout import Layout
from hypothesis import given, settings
from hypothesis import strategies as st

LAYOUT = Layout(names=("conv", "bias", "scalar"), shapes=((2, 3), (4,), ()), inert=2)


def test_dimensions_and_slices_are_the_hand_computed_ones():
    assert (LAYOUT.model_dim, LAYOUT.dim) == (11, 13)
    assert LAYOUT.slices == {
        "conv": slice(0, 6),
        "bias": slice(6, 10),
        "scalar": slice(10, 11),
        "inert": slice(11, 13),
    }


def test_without_inert_weights_no_slice_is_called_inert():
    assert Layout(names=("bias",), shapes=((4,),)).slices == {"bias": slice(0, 4)}


def test_layers_stand_in_the_layout_order_row_major_and_the_inert_weights_are_zero():
    layers = {
        "scalar": torch.tensor(30.0),
        "bias": torch.tensor([20.0, 21.0, 22.0, 23.0]),
        "conv": torch.tensor([[10.0, 11.0, 12.0], [13.0, 14.0, 15.0]]),
    }
    expected = [10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 30, 0, 0]
    assert LAYOUT.flatten(layers).tolist() == expected


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    lead=st.lists(st.integers(0, 3), max_size=3),
    shapes=st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=4),
    inert=st.integers(0, 3),
)
def test_flatten_after_unflatten_gives_the_vector_back_with_its_inert_weights_zeroed(lead, shapes, inert):
    layout = Layout(names=tuple(f"layer{n}" for n in range(len(shapes))), shapes=tuple(shapes), inert=inert)
    vector = torch.arange(1.0, 1 + layout.dim * torch.Size(lead).numel()).reshape(*lead, layout.dim)
    layers = layout.unflatten(vector)
    assert {name: tuple(layer.shape) for name, layer in layers.items()} == {
        name: (*lead, *shape) for name, shape in zip(layout.names, shapes, strict=True)
    }
    expected = vector.clone()
    expected[..., layout.model_dim :] = 0
    assert torch.equal(layout.flatten(layers), expected)


def test_a_transposed_layer_is_refused_and_not_reshaped():
    layers = LAYOUT.unflatten(torch.zeros(13))
    with pytest.raises(ValueError, match=r"layer conv must have shape \(2, 3\), got \(3, 2\)"):
        LAYOUT.flatten({**layers, "conv": torch.zeros(3, 2)})


def test_a_layer_without_the_leading_dimensions_of_the_others_is_refused():
    layers = LAYOUT.unflatten(torch.zeros(5, 13))
    with pytest.raises(ValueError, match=r"layer bias must have shape \(5, 4\), got \(4,\)"):
        LAYOUT.flatten({**layers, "bias": torch.zeros(4)})


@pytest.mark.parametrize("change", [{"more": torch.zeros(1)}, {"bias": None}])
def test_a_missing_layer_or_one_too_many_is_named(change):
    layers = {k: v for k, v in (LAYOUT.unflatten(torch.zeros(13)) | change).items() if v is not None}
    with pytest.raises(ValueError, match=r"layers must be conv, bias, scalar, got conv,"):
        LAYOUT.flatten(layers)


@pytest.mark.parametrize("shape", [(12,), (13, 4), ()])
def test_a_vector_of_another_length_is_refused(shape):
    with pytest.raises(ValueError, match="the last dimension of vector must be 13"):
        LAYOUT.unflatten(torch.zeros(shape))


@pytest.mark.parametrize(
    ("names", "shapes", "inert", "message"),
    [
        (("a", "a"), ((1,), (1,)), 0, "names must be unique"),
        (("a",), ((1,), (1,)), 0, "one per shape"),
        ((), (), 0, "at least one layer"),
        (("inert",), ((1,),), 1, "none may be called 'inert'"),
        (("a",), ((1,),), -1, "must be >= 0, got -1"),
    ],
)
def test_a_layout_that_could_confuse_two_layers_is_refused(names, shapes, inert, message):
    with pytest.raises(ValueError, match=message):
        Layout(names=names, shapes=shapes, inert=inert)
