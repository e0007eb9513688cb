import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.pretrain.tiny_corpus import tone
from training.pretrain.codec.frame_features import ContentTarget
from training.pretrain.codec.periodicity_loss import PeriodicityLoss
from training.pretrain.codec.repetition_loss import RepetitionLoss
from training.pretrain.codec.spectral_loss import QUIET_FLOOR, SpectralLoss

SAMPLE_RATE_HZ = 16_000
NUM_SAMPLES = 5120


@pytest.fixture(scope="module")
def spectral_loss() -> SpectralLoss:
    return SpectralLoss(SAMPLE_RATE_HZ)


@pytest.fixture(scope="module")
def content_target() -> ContentTarget:
    return ContentTarget(SAMPLE_RATE_HZ)


def sound(*numbers: int) -> torch.Tensor:
    return torch.stack([torch.from_numpy(tone(number)[:NUM_SAMPLES] / 32768).float() for number in numbers])


def noise(seed: int = 0) -> torch.Tensor:
    return torch.randn(1, NUM_SAMPLES, generator=torch.Generator().manual_seed(seed))


def test_a_sound_is_no_distance_from_itself(spectral_loss: SpectralLoss):
    assert spectral_loss(sound(1, 2), sound(1, 2)) == 0


@given(quiet_db=st.floats(-40, -20), louder_db=st.floats(6, 20))
def test_more_noise_is_further_away(quiet_db: float, louder_db: float):
    spectral_loss = SpectralLoss(SAMPLE_RATE_HZ)
    quiet, loud = (10 ** (db / 20) * noise() for db in (quiet_db, quiet_db + louder_db))
    assert 0 < spectral_loss(sound(1) + quiet, sound(1)) < spectral_loss(sound(1) + loud, sound(1))


def test_another_pitch_is_further_away_than_another_phase(spectral_loss: SpectralLoss):
    """A moved start changes every sample but hardly the sound."""
    moved = sound(1).roll(20, dims=1)
    assert spectral_loss(moved, sound(1)) < 0.25 * spectral_loss(sound(2), sound(1))


def deep_voice(pitch_hz: float, *, periods_late: float = 0.0) -> torch.Tensor:
    """Pulses, darker than a click."""
    place = torch.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ * pitch_hz + periods_late
    harmonics = torch.arange(1, int(7000 / pitch_hz)).unsqueeze(1)
    pulses = (torch.cos(2 * torch.pi * harmonics * place) / torch.hypot(torch.ones(1), harmonics * pitch_hz / 500)).sum(
        0
    )
    return (0.1 * pulses / pulses.std()).unsqueeze(0)


def whispered(voice: torch.Tensor) -> torch.Tensor:
    """Noise with a voice's envelope, and without its pitch."""
    envelope = torch.nn.functional.avg_pool1d(torch.fft.rfft(voice).abs().square(), 301, 1, 150).sqrt()
    spectrum = torch.fft.rfft(torch.randn(voice.shape, generator=torch.Generator().manual_seed(0)))
    found = torch.fft.irfft(spectrum * envelope, voice.shape[-1])
    return found / found.std() * voice.std()


@pytest.mark.parametrize("pitch_hz", [70, 85, 100])
def test_without_short_windows_a_deep_voice_in_another_phase_is_nearer_than_its_whisper(pitch_hz: float):
    """And not with them, which is why deep voices may be left out of them."""
    voice, late = deep_voice(pitch_hz), deep_voice(pitch_hz, periods_late=0.37)
    spectral_loss = SpectralLoss(SAMPLE_RATE_HZ, QUIET_FLOOR)
    is_deep = PeriodicityLoss(SAMPLE_RATE_HZ).periods(voice).longer_than(SAMPLE_RATE_HZ / 150, voice.shape[1])
    assert is_deep.all()
    whisper = whispered(voice)
    assert spectral_loss(late, voice, is_deep) < 0.5 * spectral_loss(whisper, voice, is_deep)
    assert spectral_loss(late, voice) > 0.8 * spectral_loss(whisper, voice)


def test_only_where_a_low_voice_speaks_short_windows_do_not_judge():
    """A higher voice and silence are judged as ever, and a low voice beside them changes nothing."""
    spectral_loss, periodicity_loss = SpectralLoss(SAMPLE_RATE_HZ), PeriodicityLoss(SAMPLE_RATE_HZ)
    low, high = deep_voice(90), deep_voice(220)
    half = SAMPLE_RATE_HZ // 2
    both = torch.cat([low[:, :half], high[:, :half]], dim=1)
    is_deep = periodicity_loss.periods(both).longer_than(SAMPLE_RATE_HZ / 150, both.shape[1])
    assert is_deep[:, : half - 1200].all()
    assert not is_deep[:, half + 1200 :].any()
    assert not periodicity_loss.periods(noise()).longer_than(0, NUM_SAMPLES).any()
    nothing_is_deep = torch.zeros_like(is_deep)
    assert spectral_loss(whispered(high), high, nothing_is_deep) == spectral_loss(whispered(high), high)


def band(waveform: torch.Tensor, low_hz: float, high_hz: float) -> torch.Tensor:
    """What is between two frequencies."""
    spectrum = torch.fft.rfft(waveform)
    hz = torch.arange(spectrum.shape[-1]) * SAMPLE_RATE_HZ / waveform.shape[-1]
    return torch.fft.irfft(spectrum * ((hz > low_hz) & (hz < high_hz)), waveform.shape[-1])


@pytest.mark.parametrize("pitch_hz", [70, 85, 100, 150])
def test_the_nearer_a_pitch_is_to_the_right_one_the_less_is_lacking(pitch_hz: float):
    lacking = PeriodicityLoss(SAMPLE_RATE_HZ)
    voice = deep_voice(pitch_hz)
    others = [deep_voice(pitch_hz * factor, periods_late=0.37) for factor in (1, 1.02, 1.05)]
    recorded = lacking.periods(voice)
    right, near, further = (float(lacking.of_bands(other, recorded)[0]) for other in others)
    nothing = float(lacking.of_bands(whispered(voice), recorded)[0])
    assert right < 0.02 < near < 0.5 * further
    assert further < 0.7 * nothing
    assert nothing > 0.8
    # Not so in the higher bands, where only what is very near is nearer.
    assert lacking(others[0], recorded) < 0.02 < lacking(others[1], recorded) < lacking(others[2], recorded)
    assert 0.3 < lacking(voice + whispered(voice), recorded) < 0.7


@pytest.mark.parametrize(("number", "low_hz", "high_hz"), [(1, 500, 1000), (2, 1000, 2000)])
def test_breath_instead_of_higher_harmonics_is_heard_unless_the_recording_has_it(
    number: int, low_hz: float, high_hz: float
):
    lacking, voice = PeriodicityLoss(SAMPLE_RATE_HZ), deep_voice(120)
    breathy = voice - band(voice, low_hz, high_hz) + band(whispered(voice), low_hz, high_hz)
    of_bands = lacking.of_bands(breathy, lacking.periods(voice))
    assert of_bands[number] > 0.6
    assert all(of_bands[other] < 0.2 for other in range(3) if other != number)
    shares_voiced = lacking.periods(breathy).is_voiced.float().mean(dim=(1, 2))
    assert shares_voiced[number] < 0.3
    assert all(shares_voiced[other] == 1 for other in range(3) if other != number)


def test_where_nothing_is_voiced_no_pitch_is_lacking():
    lacking = PeriodicityLoss(SAMPLE_RATE_HZ)
    silence = torch.zeros(1, NUM_SAMPLES, requires_grad=True)
    loss = lacking(silence, lacking.periods(noise() / 10))
    assert loss == 0
    (loss + lacking(silence, lacking.periods(sound(1)))).backward()
    assert silence.grad is not None
    assert silence.grad.isfinite().all()


def test_the_gradient_of_a_whisper_leads_to_the_pitch():
    voice = deep_voice(85)[:, :8192]
    lacking, decoded = PeriodicityLoss(SAMPLE_RATE_HZ), whispered(voice).requires_grad_()
    recorded = lacking.periods(voice)
    optimizer = torch.optim.Adam([decoded], lr=0.003)
    for _ in range(40):
        optimizer.zero_grad()
        lacking(decoded, recorded).backward()
        optimizer.step()
    assert lacking(decoded, recorded) < 0.2


def hiss(seed: int, num_samples: int = 10_240) -> torch.Tensor:
    return 0.05 * torch.randn(1, num_samples, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("step", [320, 640, 1280])
def test_noise_that_repeats_itself_is_heard_and_other_noise_is_not(step: int):
    repeats = RepetitionLoss(SAMPLE_RATE_HZ)
    buzz = hiss(0, step).repeat(1, 10_240 // step)
    assert repeats(hiss(1), hiss(0)) < 0.05
    assert repeats(buzz, hiss(0)) > 0.2 * (1280 // step)
    # What the recording repeats may be repeated: a voice of 50 Hz, or a machine.
    assert repeats(buzz, buzz) < 1e-6
    assert repeats(hiss(0), buzz) < 0.05
    assert repeats(buzz, torch.zeros_like(buzz)) == 0


def test_the_gradient_of_a_buzz_leads_to_noise():
    repeats, decoded = RepetitionLoss(SAMPLE_RATE_HZ), hiss(0, 1280).repeat(1, 8).requires_grad_()
    before = float(repeats(decoded.detach(), hiss(1)))
    optimizer = torch.optim.Adam([decoded], lr=0.003)
    for _ in range(40):
        optimizer.zero_grad()
        repeats(decoded, hiss(1)).backward()
        optimizer.step()
    assert repeats(decoded, hiss(1)) < 0.5 * before


def test_inaudible_differences_do_not_count(spectral_loss: SpectralLoss):
    silence = torch.zeros(1, NUM_SAMPLES)
    assert spectral_loss(1e-4 * noise(), 1e-4 * noise(1)) < 0.05 * spectral_loss(1e-2 * noise(), silence)


def test_a_hum_in_a_pause_counts_in_training(spectral_loss: SpectralLoss):
    """It is some 40 dB below a voice, and is heard when the voice pauses."""
    voice = sound(1) * (torch.arange(NUM_SAMPLES) < NUM_SAMPLES // 2)
    heard = voice + 1e-3 * noise()
    assert SpectralLoss(SAMPLE_RATE_HZ, QUIET_FLOOR)(heard, voice) > 5 * spectral_loss(heard, voice)


def test_gradients_are_finite_in_digital_silence(spectral_loss: SpectralLoss):
    silence = torch.zeros(2, NUM_SAMPLES, requires_grad=True)
    spectral_loss(silence, sound(1, 2)).backward()
    assert silence.grad is not None
    assert silence.grad.isfinite().all()
    assert spectral_loss(silence, torch.zeros(2, NUM_SAMPLES)).isfinite()


def test_the_gradient_leads_to_the_target(spectral_loss: SpectralLoss):
    decoded = sound(1) + 0.05 * noise()
    decoded.requires_grad_()
    before = spectral_loss(decoded, sound(1))
    (gradient,) = torch.autograd.grad(before, decoded)
    after = spectral_loss(decoded.detach() - 1e-3 * gradient / gradient.norm(), sound(1))
    assert after < before


@given(gain_db=st.floats(-6, 6))
def test_content_does_not_depend_on_loudness(gain_db: float):
    content_target = ContentTarget(SAMPLE_RATE_HZ)
    # Bands at the floor cannot get quieter, and a tone alone leaves most of them there.
    sounding = sound(1) + 0.1 * noise()
    louder = content_target(sounding * 10 ** (gain_db / 20))
    torch.testing.assert_close(louder, content_target(sounding), atol=2e-3, rtol=0)


def test_content_does_not_depend_on_an_even_colouring(content_target: ContentTarget):
    """A channel, or a voice's average timbre, is a filter that stays; the crop's own changes are what is left."""
    swelling = torch.linspace(0.1, 1, NUM_SAMPLES) * noise()
    coloured = torch.nn.functional.conv1d(swelling.unsqueeze(1), torch.tensor([[[0.3, 1.0, 0.3]]]), padding=1)[:, 0]
    plain, filtered = content_target(swelling), content_target(coloured)
    assert (filtered - plain).abs().mean() < 0.1 * plain.abs().mean()


def test_content_has_a_value_for_every_band_and_ten_milliseconds_of_each_frame(content_target: ContentTarget):
    target = content_target(sound(1, 2, 3))
    assert target.shape == (3, 24 * 8, NUM_SAMPLES // 1280)
    frames = target.unflatten(1, (24, 8)).transpose(2, 3).flatten(2)
    torch.testing.assert_close(frames.mean(dim=-1), torch.zeros(3, 24), atol=1e-5, rtol=0)


def test_silence_has_content_zero(content_target: ContentTarget):
    assert content_target(torch.zeros(1, NUM_SAMPLES)).abs().max() < 1e-4
