from dataclasses import replace

from .example import HOST, tuned_config


def test_the_measured_machine_has_no_mismatch() -> None:
    assert tuned_config().mismatches(HOST) == ()


def test_each_difference_is_a_sentence_with_both_values() -> None:
    here = replace(HOST, device="NVIDIA L4", usable_cpus=2.0, memory_bytes=2**30)
    sentences = tuned_config().mismatches(here)
    assert "This machine differs in device: NVIDIA L4, was NVIDIA H200 when it was measured." in sentences
    assert "This machine differs in usable_cpus: 2.0, was 7.5 when it was measured." in sentences
    assert len(sentences) == 3
    assert any("memory_bytes" in sentence for sentence in sentences)


def test_what_is_unknown_here_is_not_a_mismatch() -> None:
    assert tuned_config().mismatches(replace(HOST, device="", driver="", torch="", num_devices=0)) == ()
