"""Programs that try to get past the harness: wrong ones that hide, right ones that look wrong."""
