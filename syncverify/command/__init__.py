"""The command line `syncverify`: options, and a module or a folder for each command."""
