"""Sensitive regions drawn by hand."""

import torch
from fedassay.fl.data.dataset import box_mask, stroke_box


def test_the_stroke_box_is_the_smallest_box_around_the_ink():
    """Two strokes of the first image, in two channels; a spot that is too dark; the second image is black."""
    images = torch.zeros(2, 3, 8, 8)
    images[0, 1, 2, 3] = images[0, 0, 5, 4] = 0.5
    images[0, 2, 7, 7] = 0.05
    wanted = torch.zeros(2, 8, 8, dtype=torch.bool)
    wanted[0, 2:6, 3:5] = True
    assert torch.equal(stroke_box(images), wanted)


def test_ink_in_two_corners_makes_the_whole_image_sensitive():
    images = torch.zeros(1, 1, 5, 4)
    images[0, 0, 0, 3] = images[0, 0, 4, 0] = 1
    assert stroke_box(images).all()


def test_boxes_mark_their_pixels_and_are_cut_at_the_border():
    """Edges on the right and at the bottom are outside; a box that lies beyond the image marks nothing."""
    mask = box_mask([(1, 0, 3, 2), (2, 1, 9, 3), (-5, -5, -1, -1), (6, 0, 8, 9)], 4, 5)
    assert mask.int().tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]
