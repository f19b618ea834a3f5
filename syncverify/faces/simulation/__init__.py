"""Any program on simulated ranks: `syncverify.simulate(program, ranks=4)`."""
