"""The network: talker, code predictor, speaker encoder and their layers."""
