"""Rows of the model sweep: models of sound, and of series in time."""

from __future__ import annotations

import torch
from _models_batches import BATCH, LABELS, sound_label, sound_text, spectrum_text, words
from _models_hub import hub
from _models_row import Batch
from torch import nn

SOUND, SERIES = "sound", "series in time"
_WAVES = {"conv_dim": [16, 16, 16], "conv_stride": [4, 4, 4], "conv_kernel": [8, 8, 8], "ctc_zero_infinity": True}
_SEW = {**_WAVES, "squeeze_factor": 2}

hub(
    SOUND,
    sound_text,
    "Wav2Vec2ForCTC",
    "HubertForCTC",
    "WavLMForCTC",
    "UniSpeechForCTC",
    "UniSpeechSatForCTC",
    given=_WAVES,
)
hub(SOUND, sound_text, "Wav2Vec2ConformerForCTC", given={**_WAVES, "vocab_size": 32})
hub(SOUND, sound_text, "Data2VecAudioForCTC", given={**_WAVES, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3})
hub(SOUND, sound_text, "SEWForCTC", "SEWDForCTC", given=_SEW)
hub(SOUND, sound_label, "Wav2Vec2ForSequenceClassification", "HubertForSequenceClassification", given=_WAVES)
hub(
    SOUND,
    sound_text,
    "Wav2Vec2ForCTC",
    given={**_WAVES, "feat_extract_norm": "layer", "do_stable_layer_norm": True},
    variant="layer norm",
)
hub(SOUND, sound_text, "Wav2Vec2ForCTC", given={**_WAVES, "add_adapter": True}, variant="adapter")


def features(model: nn.Module) -> Batch:
    """Spectra with their mask, and the words that are spoken."""
    del model
    mask = (torch.arange(30) < torch.tensor([30, 30, 24, 20])[:, None]).long()
    labels = torch.randint(3, 30, (BATCH, 4))
    return {"input_features": torch.randn(BATCH, 30, 160), "attention_mask": mask, "labels": labels}


hub(SOUND, features, "Wav2Vec2BertForCTC", given={"vocab_size": 32})
hub(
    SOUND,
    spectrum_text(40, 16),
    "WhisperForConditionalGeneration",
    given={
        "max_source_positions": 20,
        "max_target_positions": 20,
        "num_mel_bins": 16,
    },
)
hub(
    SOUND,
    spectrum_text(40, 16),
    "WhisperForConditionalGeneration",
    variant="spec augment off, cache",
    given={
        "max_source_positions": 20,
        "max_target_positions": 20,
        "num_mel_bins": 16,
        "use_cache": True,
    },
)


def speech(model: nn.Module) -> Batch:
    """Spectra [batch, frames, mels] with their mask, and the words that are spoken."""
    del model
    mask = (torch.arange(40) < torch.tensor([40, 40, 32, 24])[:, None]).long()
    return {"input_features": torch.randn(BATCH, 40, 16), "attention_mask": mask, "labels": words(8)}


hub(
    SOUND,
    speech,
    "Speech2TextForConditionalGeneration",
    given={
        "max_source_positions": 64,
        "max_target_positions": 64,
        "input_feat_per_channel": 16,
        "conv_channels": 16,
        "num_conv_layers": 2,
        "conv_kernel_sizes": [5, 5],
    },
)


def spectrum(model: nn.Module) -> Batch:
    """Spectra as images."""
    del model
    return {"input_values": torch.randn(BATCH, 32, 16), "labels": torch.randint(0, LABELS, (BATCH,))}


hub(
    SOUND,
    spectrum,
    "ASTForAudioClassification",
    given={
        "max_length": 32,
        "num_mel_bins": 16,
        "frequency_stride": 4,
        "time_stride": 4,
    },
)


def spoken(model: nn.Module) -> Batch:
    """Waves and the words that are spoken."""
    del model
    return {"input_values": torch.randn(BATCH, 1600), "labels": words(6)}


hub(
    SOUND,
    spoken,
    "MoonshineForConditionalGeneration",
    given={
        "encoder_num_hidden_layers": 2,
        "decoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4,
        "encoder_num_key_value_heads": 4,
        "decoder_num_key_value_heads": 4,
    },
)

_PAST, _FUTURE, _LAGS = 16, 6, [1, 2, 3]


def forecast(model: nn.Module) -> Batch:
    """The past of a series with gaps, and its future."""
    del model
    length = _PAST + max(_LAGS)
    return {
        "past_values": torch.rand(BATCH, length) + 0.5,
        "past_time_features": torch.randn(BATCH, length, 2),
        "past_observed_mask": (torch.rand(BATCH, length) > 0.1).float(),
        "future_values": torch.rand(BATCH, _FUTURE) + 0.5,
        "future_time_features": torch.randn(BATCH, _FUTURE, 2),
    }


_FORECAST = {
    "prediction_length": _FUTURE,
    "context_length": _PAST,
    "lags_sequence": _LAGS,
    "num_time_features": 2,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
hub(SERIES, forecast, "TimeSeriesTransformerForPrediction", given=_FORECAST)


def counted(model: nn.Module) -> Batch:
    """A series of counts."""
    batch = forecast(model)
    return {**batch, **{name: (batch[name] * 4).floor() for name in ("past_values", "future_values")}}


hub(
    SERIES,
    counted,
    "TimeSeriesTransformerForPrediction",
    given={**_FORECAST, "distribution_output": "negative_binomial"},
    variant="counts",
)
hub(SERIES, forecast, "AutoformerForPrediction", given={**_FORECAST, "label_length": 4, "moving_average": 5})
hub(
    SERIES,
    forecast,
    "InformerForPrediction",
    given={**_FORECAST, "attention_type": "full", "distil": True},
    variant="full attention",
)


def channels(model: nn.Module) -> Batch:
    """Three series, their past and their future."""
    del model
    return {"past_values": torch.randn(BATCH, 32, 3), "future_values": torch.randn(BATCH, 8, 3)}


_PATCHES = {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "prediction_length": 8}
hub(SERIES, channels, "PatchTSTForPrediction", "PatchTSMixerForPrediction", given=_PATCHES)
hub(SERIES, channels, "PatchTSTForPrediction", given={**_PATCHES, "loss": "nll"}, variant="likelihood")


def classified(model: nn.Module) -> Batch:
    """One class for each series."""
    del model
    return {"past_values": torch.randn(BATCH, 32, 3), "target_values": torch.randint(0, LABELS, (BATCH,))}


hub(SERIES, classified, "PatchTSTForClassification", given={**_PATCHES, "num_targets": LABELS, "use_cls_token": True})


def episodes(model: nn.Module) -> Batch:
    """Steps of a game."""
    del model
    return {
        "states": torch.randn(BATCH, 5, 17),
        "actions": torch.randn(BATCH, 5, 4),
        "rewards": torch.randn(BATCH, 5, 1),
        "returns_to_go": torch.randn(BATCH, 5, 1),
        "timesteps": torch.arange(5).expand(BATCH, -1).clone(),
        "attention_mask": torch.ones(BATCH, 5),
    }


hub(SERIES, episodes, "DecisionTransformerModel", given={"vocab_size": 1, "max_ep_len": 32})
