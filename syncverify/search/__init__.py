"""The search for violations of a subject.

======================= ==============================================================
module                  content
======================= ==============================================================
`search`                the whole search: explore all scenarios, then shrink violations
`drawing`               draw: random scenarios from a seed
`judge`                 play and judge each scenario and schedule once
`budget`                limits on the runs of a judge
`schedules`             the schedules that are played with each scenario
`shrinking`             shrink a violation
`simpler_scenarios`     scenarios with one thing less
`found_violation`       a violation with the scenario and schedule that show it
`occurrences`           the violations of all scenarios, and which of them explain others
`saved_violations`      violations are saved when they are met
`result`                progress, statistics and result of a search
`first_violation`       a search that ends with the first violation
`replayed`              a scenario that is played once more
`replay`                violations saved by earlier runs, played first
`shards`                the shards of a search, and the play of one of them
`crews`                 who plays the shards
`sharded_search`        a search in shards, whose results are merged
`campaign_file`         the shards that were played, from which a search goes on
`exhaustive`            a search that plays every scenario of a small scope
`isolation`             independence from torch modes, local files and addresses
======================= ==============================================================
"""
