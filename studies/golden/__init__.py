"""Golden transcripts of programs, to show that a change of code changes nothing that is seen."""
