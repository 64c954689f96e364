"""Command lines of Java services, sized for small machines."""

from collections.abc import Sequence
from pathlib import Path

#: With little heap and few cores these are worth a factor of two in boot time and latency.
_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


def command(
    java: Path, heap_mib: int, classpath: Sequence[Path], main: str, *arguments: str, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """`java`: the home of a JDK 17; later ones refuse to run Cassandra and Hadoop. `classpath`: directories, in which
    configuration is found by name and of which all jars are taken.
    """
    places = ":".join(f"{place}/*" if place.name == "lib" else str(place) for place in classpath)
    heap = (f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m")
    return (str(java / "bin" / "java"), *heap, *_SMALL, *options, "-cp", places, main, *arguments)


def opened(exports: Sequence[str], opens: Sequence[str]) -> tuple[str, ...]:
    """Options that give an application modules' packages, named MODULE/PACKAGE, which Java 17 keeps to itself."""
    return (
        *(f"--add-exports={package}=ALL-UNNAMED" for package in exports),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in opens),
    )
