"""What can go wrong between a studio and the cluster it speaks on."""

from __future__ import annotations

from backend.serving.errors import ServingError


class ClusterSpeechError(ServingError):
    """The cluster cannot speak now."""

    @classmethod
    def lost(cls, address: str) -> ClusterSpeechError:
        """It was there before."""
        return cls(
            f"The cluster at {address} was lost while it spoke. Speak again, or load the model on this compute"
            "r (behind the model's name, above)."
        )

    @classmethod
    def silent(cls, address: str, seconds: float) -> ClusterSpeechError:
        """Nothing came for too long."""
        return cls(
            f"The cluster at {address} has sent nothing for {seconds:g} s. Speak again, or load the model on this"
            " computer (behind the model's name, above)."
        )

    @classmethod
    def without_replica(cls, address: str) -> ClusterSpeechError:
        """The application is there, and nothing in it speaks."""
        return cls(
            f"No process on the cluster at {address} speaks at the moment. Speak again in a minute, or load the "
            "model on this computer (behind the model's name, above)."
        )

    @classmethod
    def of_another_version(cls, address: str, theirs: str | None, ours: str) -> ClusterSpeechError:
        """What runs there cannot be understood here, and leaves no room; `theirs` is None where it does not say."""
        if theirs is None:
            return cls(
                f"The speech application on the cluster at {address} is of an older Encore than this, which is {ours}, "
                "and there is no room for another. Install one version on both, or load the model on this computer "
                "(behind the model's name, above)."
            )
        return cls(
            f"The speech application on the cluster at {address} is of Encore {theirs}, and this is {ours}; "
            "there is no room for another. Install one version on both, or load the model on this computer (behind "
            "the model's name, above)."
        )

    @classmethod
    def not_started(cls, address: str, reason: str) -> ClusterSpeechError:
        """The application does not come up."""
        return cls(
            f"The speech application did not start on the cluster at {address}: {reason}. Try again, or load the "
            "model on this computer (behind the model's name, above)."
        )

    @classmethod
    def replaced(cls) -> ClusterSpeechError:
        """Whoever began with this model must not start it there again."""
        return cls("Another model was loaded meanwhile. Begin again.")

    @classmethod
    def stopped(cls) -> ClusterSpeechError:
        """Stop was pressed before the cluster had answered."""
        return cls("It was stopped before it began.")
