"""The search for violations of a subject.

======================= ==============================================================
module                  content
======================= ==============================================================
`search`                the whole search: explore all scenarios, then shrink violations
`exploration`           play all scenarios once, and note what they show
`drawing`               draw: random scenarios from a seed
`missing_values`        scenarios for values of the contract that were not met
`judge`                 play and judge each scenario and schedule once
`budget`                limits on the runs of a judge
`smallest`              the smallest form of a finding: the search for it
`shrinking`             shrink a violation
`smaller_scenarios`     scenarios with one thing or one feature less, and parts
`found_violation`       a violation with the scenario and schedule that show it
`plain_state`           plain values that an object holds, and those that a step left
`line_probe`            the lines of a subject that run
`occurrences`           the violations of all scenarios, and which of them explain others
`result`                statistics and result of a search
`observation`           one rating for each feature beyond the contract
`feature_scenarios`     scenarios with one feature beyond plain training steps
`saved_violations`      violations are saved when they are met, and played first
`violation_database`    the folder or server in which they are saved
`replayed`              a scenario that is played once more
`shards`                the shards of a search, and the play of one of them
`sharded_search`        a search in shards, whose results are merged
`campaign_file`         the shards that were played, from which a search goes on
`whole_file`            files that are written as a whole
`isolation`             independence from torch modes, local files, and tests around
======================= ==============================================================
"""
