"""Every defense or attack of the package, imported."""

from fedassay.suites.config.part_files import Kind, own_parts


def parts_by_name(kind: Kind) -> dict[str, type]:
    return {name: part.load() for name, part in own_parts(kind).items()}
