"""The search for violations of a subject.

======================= ==============================================================
module                  content
======================= ==============================================================
`search`                the whole search: explore all scenarios, then shrink violations
`drawing`               draw: random scenarios from a seed
`missing_values`        scenarios for values of the contract that were not met
`judge`                 play and judge each scenario and schedule once
`budget`                limits on the runs of a judge
`schedules`             the schedules that are played with each scenario
`shrinking`             shrink a violation
`simpler_scenarios`     scenarios with one thing less
`scenario_parts`        parts of a scenario, the smallest first
`needed_features`       the features that a violation needs
`found_violation`       a violation with the scenario and schedule that show it
`left_over_value`       a value that one step left in a subject for the next
`plain_state`           plain values that an object holds
`line_probe`            the lines of a subject that run
`occurrences`           the violations of all scenarios, and which of them explain others
`result`                progress, statistics and result of a search
`first_violation`       a search that ends with the first violation
`observation`           one rating for each feature beyond the contract
`feature_scenarios`     scenarios with one feature beyond plain training steps
`beyond_contract`       scenarios of a user, with features beyond the contract
`saved_violations`      violations are saved when they are met
`violation_folder`      the folder in which they are saved
`violation_server`      the server on which they are saved
`replayed`              a scenario that is played once more
`replay`                violations saved by earlier runs, played first
`shards`                the shards of a search, and the play of one of them
`crews`                 who plays the shards
`sharded_search`        a search in shards, whose results are merged
`campaign_file`         the shards that were played, from which a search goes on
`exhaustive`            a search that plays every scenario of a small scope
`whole_file`            files that are written as a whole
`isolation`             independence from torch modes, local files and addresses
`outer_test`            the Hypothesis test of a user around a play
======================= ==============================================================
"""
