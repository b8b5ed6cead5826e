"""Apache Kafka 4.3.1 as a reference: its jars, its broker, its tools, and its message classes to check our bytes.

Nothing here is part of Pessoa. `jars` fetches what Apache published, once, pinned by checksum; `broker` starts real
brokers and tools from it; `judge` keeps one Java process that reads our bytes and writes bytes for us to read.
Tests that use any of it carry `@pytest.mark.apache`, which skips them where Java is missing.
"""
