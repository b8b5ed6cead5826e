"""Whom a service believes over HTTPS does not depend on the Python that it runs on."""

from __future__ import annotations

import ssl

from pessoa.web.trust import trusting


def test_certificates_without_what_only_newer_pythons_ask_for_are_believed() -> None:
    flags = trusting(None).verify_flags
    assert not flags & ssl.VERIFY_X509_STRICT
    assert flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_who_answers_must_show_a_certificate_in_its_own_name() -> None:
    context = trusting(None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
