"""The contract with the caller: options, argument checks, errors, and comm hooks."""
