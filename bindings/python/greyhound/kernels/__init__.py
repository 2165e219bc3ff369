"""Raw kernel helpers: they overwrite their input, and know nothing of autograd."""
