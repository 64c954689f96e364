"""A node's directory as the agent knows it, and the agent's settings in it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr


@dataclass(frozen=True, slots=True)
class Home:
    """Where things are in a node's directory; what pbdeploy places there is in `agent`."""

    directory: Path

    @property
    def agent(self) -> Path:
        return self.directory / "agent"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def services(self) -> Path:
        """What supervisord includes."""
        return self.directory / "conf" / "services.conf"

    @property
    def supervisor(self) -> Path:
        """The socket of the node's supervisord."""
        return self.directory / "run" / "supervisor.sock"

    @property
    def first_boot(self) -> Path:
        """Is there once the cluster's first boot is done; only ever on its first node."""
        return self.directory / "first-boot.done"

    @property
    def left(self) -> Path:
        """Is there once the node has given up its data to the others."""
        return self.directory / "left.done"

    @property
    def leaving(self) -> Path:
        """How far that is, in words."""
        return self.directory / "run" / "leaving"

    @property
    def written(self) -> Path:
        """Says for which layout and version the files are. supervisord may not know of them yet."""
        return self.directory / "run" / "written"

    @property
    def prepared(self) -> Path:
        """Says for which layout and version the node is prepared: its services can be started."""
        return self.directory / "run" / "prepared"

    @property
    def layout(self) -> Path:
        """The one it was prepared for."""
        return self.directory / "run" / "layout.json"

    @property
    def wanted(self) -> Path:
        """The head's: what was asked for last."""
        return self.agent / "wanted.json"

    def program(self, service: str) -> Path:
        """What a service's process is, as the launcher reads it."""
        return self.directory / "run" / f"{service}.program"

    def begins(self, service: str) -> Path:
        """Is there as long as the service's next start is to be the one that begins the cluster."""
        return self.directory / "run" / f"{service}.begins"


class AgentSettings(BaseModel):
    """agent.toml, mode 0600, beside the certificate and the secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=1, description="of the node; the first has the head")
    address: str
    port: int = Field(gt=0, lt=1 << 16)

    @classmethod
    def read(cls, home: Home) -> Self:
        """Raises OSError, ValueError."""
        return cls.model_validate(tomllib.loads((home.agent / "agent.toml").read_text(encoding="utf-8")))


def secret(home: Home) -> SecretStr:
    """The one of the cluster."""
    return SecretStr((home.agent / "secret").read_text(encoding="ascii").strip())
