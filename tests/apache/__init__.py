"""Apache Kafka 4.3.1 as an oracle: its jars, its broker, its tools, and its message classes as a judge of our bytes.

Nothing here is part of Pessoa. `jars` fetches what Apache published, once, pinned by checksum; `broker` starts real
brokers and tools from it; `judge` keeps one Java process that reads bytes we wrote and writes bytes for us to read.
Tests that use any of it carry `@pytest.mark.apache`, which skips them where Java cannot be had.
"""
