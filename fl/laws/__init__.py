"""Laws: public descriptions of the distribution of a release."""
