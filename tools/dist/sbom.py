"""The bill of materials of the static programs, as SPDX 2.3 in JSON.

It is read from what the linker reports (-Wl,-Map), not from a list: each archive of which a member was linked belongs to a
Debian package, and that package has a version. packaging/licences.json names the licence of each source package; a library
that it does not name is an error, so that nobody can add one without looking at its licence.
"""
import hashlib
import json
import re
import subprocess
import uuid
from collections import defaultdict
from datetime import datetime, timezone
from pathlib import Path

from common import HERE, output_of

MEMBER = re.compile(r"^(?:LOAD )?(/[^(\n]+\.(?:a|o))(\(|$)", re.M)
PUBLIC_DOMAIN = "The files of liblzma are in the public domain, as the file COPYING of XZ Utils 5.4 says."


class Library:
    """A Debian package, or the small libcurl that was built from one, with files that are linked in."""

    def __init__(self, name, version, source, source_version, copyright_file):
        self.name, self.version, self.source, self.source_version = name, version, source, source_version
        self.copyright_file = copyright_file
        known = json.loads((HERE / "packaging" / "licences.json").read_text(encoding="utf-8"))
        family = re.sub(r"^gcc-\d+$", "gcc", source)
        if family not in known:
            raise SystemExit(f"dist: the licence of '{source}' ({name}) is unknown: read {copyright_file}, and add it to packaging/licences.json")
        self.licence = known[family]

    @property
    def id(self):
        return "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", self.name)


def linked_files(map_file):
    """Files outside of this tree from which the linker took code: members of archives, and start files."""
    text = map_file.read_text(encoding="utf-8", errors="replace")
    found = set()
    for match in MEMBER.finditer(text):
        path, bracket = match.groups()
        if bracket == "(" or path.endswith(".o"):
            found.add(Path(path).resolve())
    return {path for path in found if not path.is_relative_to(HERE)}


class Finder:
    """From a file to its library."""

    def __init__(self, curl):
        self.curl, self.found = curl, {}

    def library_of(self, path):
        if path.is_relative_to(self.curl):
            version = (self.curl / "version").read_text(encoding="ascii").strip()
            return self.known("libcurl-http", lambda: Library("libcurl-http", version, "curl", version, self.curl / "copyright"))
        done = subprocess.run(["dpkg-query", "-S", path], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"dist: '{path}' is linked in, and belongs to no package: the bill of materials would be wrong")
        return self.package(done.stdout.split(":")[0])

    def package(self, name):
        def look():
            form = "${Version} ${source:Package} ${source:Version}\n"
            version, source, source_version = output_of("dpkg-query", "-W", "-f", form, name).splitlines()[0].split()
            return Library(name, version, source, source_version, Path("/usr/share/doc") / name / "copyright")
        return self.known(name, look)

    def known(self, name, make):
        if name not in self.found:
            self.found[name] = make()
        return self.found[name]


def libraries_of(maps, curl):
    """program -> its libraries, sorted by name. maps: program -> map file."""
    finder = Finder(curl)
    result = {}
    for program, map_file in sorted(maps.items()):
        libraries = {finder.library_of(path) for path in linked_files(map_file)}
        result[program] = sorted(libraries, key=lambda l: l.name)
    return result


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def distribution():
    words = dict(re.findall(r'(?m)^(ID|VERSION_ID)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(encoding="utf-8")))
    return words["ID"], f"{words['ID']}-{words.get('VERSION_ID', 'unknown')}"


def package_entry(library):
    vendor, distro = distribution()
    purl = f"pkg:deb/{vendor}/{library.source}@{library.source_version}?arch=source&distro={distro}"
    return {
        "SPDXID": library.id, "name": library.name, "versionInfo": library.version, "supplier": f"Organization: {vendor.capitalize()}",
        "downloadLocation": f"https://snapshot.debian.org/package/{library.source}/{library.source_version}/" if vendor == "debian" else "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": library.licence, "licenseDeclared": library.licence, "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from the source package {library.source} {library.source_version}",
        "comment": f"licences/{library.name}.txt has the licence and the copyright holders.",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}],
    }


def own_entry(version, files):
    code = hashlib.sha1("".join(sorted(f["checksums"][1]["checksumValue"] for f in files)).encode()).hexdigest()
    return {
        "SPDXID": "SPDXRef-Package-ripcord", "name": "ripcord", "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": code}, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION", "primaryPackagePurpose": "APPLICATION",
    }


def file_entry(name, path):
    data = path.read_bytes()
    return {
        "SPDXID": "SPDXRef-File-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "fileName": f"./{name}", "licenseConcluded": "NOASSERTION",
        "fileTypes": ["BINARY"], "copyrightText": "NOASSERTION",
        "checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
                      {"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()}],
    }


def document(version, epoch, programs, libraries, data_files):
    """programs: name in the archive -> path. libraries: the same names -> lists. data_files: the same for files that were copied
    from a package, with one library each."""
    entries = {name: file_entry(name, path) for name, path in sorted(programs.items())}
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-ripcord")]
    used = defaultdict(list)
    for name, entry in entries.items():
        relations.append(("SPDXRef-Package-ripcord", "CONTAINS", entry["SPDXID"]))
        kind = "GENERATED_FROM" if name in data_files else "STATIC_LINK"
        for library in libraries[name]:
            relations.append((entry["SPDXID"], kind, library.id))
            used[library.name].append(library)
    packages = [own_entry(version, list(entries.values())), *(package_entry(used[name][0]) for name in sorted(used))]
    result = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"ripcord-{version}-linux-x86_64",
        "creationInfo": {"created": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: ripcord-tools-dist"]},
        "packages": packages, "files": list(entries.values()),
        "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-liblzma-public-domain", "name": "Public domain", "extractedText": PUBLIC_DOMAIN}],
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }
    text = json.dumps(result, indent=2, sort_keys=True)
    result["documentNamespace"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}"
    return json.dumps(result, indent=2, sort_keys=True) + "\n"
