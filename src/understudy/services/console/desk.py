"""What one console looks after: a holder's home, or a hub's folder, and output folders of runs beside it."""

from dataclasses import dataclass
from pathlib import Path

from understudy.ground.errors import ArtefactError
from understudy.services.console.holder import HolderHome
from understudy.services.console.hub import HubHome
from understudy.services.console.runs import RunFolder, run_folder


@dataclass(frozen=True, kw_only=True)
class Desk:
    """One folder, and the runs that were named with it. `desk_of` makes one."""

    holder: HolderHome | None = None
    hub: HubHome | None = None
    more: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        """Whose page it is."""
        if self.holder is not None:
            return self.holder.party
        return self.hub.name if self.hub is not None else "Runs"

    def runs(self) -> list[RunFolder]:
        """Runs by their output folders: those of the hub, and those that were named."""
        named = [run_folder(f"folder-{number}", folder) for number, folder in enumerate(self.more, 1)]
        return [*named, *(self.hub.runs() if self.hub is not None else ())]

    def run(self, key: str) -> RunFolder:
        """One of them. ArtefactError if there is none of that name."""
        for found in self.runs():
            if found.key == key:
                return found
        raise ArtefactError("There is no such run here.")


def desk_of(folder: Path, runs: tuple[Path, ...] = ()) -> Desk:
    """What is in this folder. ArtefactError if it is neither a home, nor a federation's, nor a run's."""
    folder = folder.resolve()
    more = tuple(run.resolve() for run in runs)
    for run in more:
        run_folder("", run)
    if (folder / "federation.toml").exists():
        return Desk(hub=HubHome(folder), more=more)
    try:
        return Desk(holder=HolderHome(folder), more=more)
    except ArtefactError:
        try:
            run_folder("", folder)
        except ArtefactError:
            raise ArtefactError(
                f"{folder} is not the home of a party (`join --home`), not the folder of a federation, and not the "
                "output folder of a run."
            ) from None
    return Desk(more=(folder, *more))
