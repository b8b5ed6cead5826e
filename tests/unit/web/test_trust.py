"""Which certificates a service trusts over HTTPS does not depend on the Python that it runs on."""

from __future__ import annotations

import ssl

from pessoa.web.trust import tls_context


def test_certificates_without_extensions_that_only_newer_pythons_demand_are_trusted() -> None:
    flags = tls_context(None).verify_flags
    assert not flags & ssl.VERIFY_X509_STRICT
    assert flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_a_server_must_show_a_certificate_for_its_own_host_name() -> None:
    context = tls_context(None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
