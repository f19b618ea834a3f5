"""`syncverify export`: write a token's scenario as a script that needs torch alone."""
