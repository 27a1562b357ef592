"""Sends a ClusterFuzz farm's remote tasks to katabatch. Standard library only."""

from katabatch_clusterfuzz.client import Client
from katabatch_clusterfuzz.client import Refused
from katabatch_clusterfuzz.client import Unavailable
from katabatch_clusterfuzz.service import KatabatchService
from katabatch_clusterfuzz.service import RemoteTask

__all__ = ["Client", "KatabatchService", "Refused", "RemoteTask", "Unavailable"]
