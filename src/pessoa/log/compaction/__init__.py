"""Compaction: a log with `cleanup.policy=compact` keeps at least the last record of every key. Read in this order:

log_to_clean           which part of a log may be cleaned, whether that is due, and the plan for it
cleaning_plan          what goes to the worker that cleans, and what comes back
offset_map             the last offset of every key in the dirty part
batch_rewrite          what becomes of one batch (pure)
cleaned_transactions   which markers and aborted batches may go (pure)
cleaning_pass          the worker: reads the segments of a plan, writes cleaned ones beside them
cleaning_process       the worker as a process of its own
segment_swap           cleaned segments take the place of the ones they were made from
log_cleaner            the shell: picks the dirtiest log, runs a pass, swaps its segments in, moves the checkpoint
"""
