"""Record batches, the unit in which Kafka stores, replicates and sends records.

Everything here is pure: bytes in, bytes or values out. Read in this order:

    batch             the format, and `RecordBatch`, a view of one batch's header over bytes that it does not own
    checksum          CRC-32C
    stamping          what a leader writes into a batch in place: base offset, leader epoch, log-append time
    batch_validation  what a leader checks of a produced batch before it appends it
    record            `Record`, and reading the records of a batch
    builder           making a batch from records
    compression       gzip, snappy, lz4 and zstd, bounded
    control_records   what brokers write for themselves: transaction markers, leader changes, snapshot borders
    invalid_batch     `InvalidBatch`, the one way in which bytes can be refused

A produced batch goes through `RecordBatch`, `batch_validation` and `stamping` and is never opened; compaction, the
coordinators and the tools go through `record` and `builder`.
"""
