"""Controls: defenses and mechanisms that break their claim on purpose; every audit must refute them."""
