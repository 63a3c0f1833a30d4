"""Laws: public descriptions of the distribution of what a defense releases."""
