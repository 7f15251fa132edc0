"""The labels and tags of published treebanks, by which unknown ones are noticed.

A label of no treebank may be a remark that the reader does not know, such as a page
number, whose content would be read as words. Unknown ones are counted, and too many
refused.
"""

import dataclasses
import re

from t2t_keras.errors import UserError, quantity

from .linearise import CONSTITUENTS, TAGS
from .tree import OUTER, Tree, core_label, looks_empty

# The Penn Treebank's, and those that its relatives (Switchboard, OntoNotes, English
# Web) add to `linearise.CONSTITUENTS` and `TAGS`.
_PENN = """
-LCB- -RCB- -LSB- -RSB- -NONE- " ' AUX AUXG BES CODE HVS PRN VBX XX FRAG META NOPARSE
"""
_CHINESE = """
AD AS BA CC CD CS DEC DEG DER DEV DT EM ETC FW IC IJ INF JJ LB LC M MSP NN NOI NR NT OD
ON P PN PU SB SP URL VA VC VE VV X
ADJP ADVP CLP CP DFL DNP DP DVP FLR FRAG FW HEADER HLP INC INTJ IP LCP LST NP OTH PP PRN
QP SKIP TYPO UCP VCD VCP VNV VP VPT VRD VSB WHNP WHPP
"""
# Negra, Tiger and TüBa-D/Z.
_GERMAN = """
ADJA ADJD ADV APPO APPR APPRART APZR ART CARD FM ITJ KOKOM KON KOUI KOUS NE NN NNE PAV
PDAT PDS PIAT PIDAT PIS PPER PPOSAT PPOSS PRELAT PRELS PRF PROAV PROP PTKA PTKANT PTKNEG
PTKVZ PTKZU PWAT PWAV PWS SGML SPELL TRUNC VAFIN VAIMP VAINF VAPP VMFIN VMINF VMPP VVFIN
VVIMP VVINF VVIZU VVPP XY $, $. $ $[ $( $*LRB* $LRB
AA AP AVP CAC CAP CAVP CCP CH CNP CO CPP CS CVP CVZ DL DM ISU MPN MTA NM NP PN PP PSEUDO
QL S VP VZ
ADJX ADVX C DP ENADD FKONJ FKOORD FX KOORD LK LV MF MFE NF NX P PX R SIMPX VC VCE VF
VXFIN VXINF
"""
_FRENCH = """
A ADJ ADJWH ADV ADVWH C CC CL CLO CLR CLS CS D DET DETWH ET I N NC NP NPP P PONCT PREF
PRO PROREL PROWH V VIMP VINF VPP VPR VS
AP AdP COORD PP SENT Sint Srel Ssub VN VPinf VPpart
MWA MWADV MWC MWCC MWCL MWCS MWD MWDET MWET MWI MWN MWNC MWP MWPRO MWV
"""
# The Penn-Helsinki corpora of English; YCOE, IcePaHC, MCVF and Tycho Brahe. A number
# after a tag, as in ADV21, counts the parts of a word that is written apart.
_HISTORICAL = """
ADJ ADJR ADJS ADJX ADV ADVR ADVS ADVX ALSO AN BAG BAN BE BED BEDI BEDS BEI BEN BEP BEPH
BEPI BEPS C CODE COM CONJ D DA DAG DAN DO DOD DODI DODS DOI DON DOP DOPI DOPS DR ELSE ES
EX FOR FP FW H HAG HAN HV HVD HVDI HVDS HVI HVN HVP HVPI HVPS INTJ LATIN LB LS M MAG MAN
MD MD0 MDD MDDI MDDS MDI MDN MDP MDPI MDPS MEAN N N$ NEG NPR NPR$ NPRS NPRS$ NR NR$ NS
NS$ NUM NUM$ NUMP ONE ONE$ ONES OTHER OTHER$ OTHERS OTHERS$ P PRO PRO$ Q Q$ QP QR QS RAG
RAN RD RDD RDDI RDI RDN RDP RDPI RDPS RDDS RP RPX SUCH SUCHP TO UTP VAG VAN VB VBD VBDI
VBDS VBI VBN VBP VBPH VBPI VBPS WADJ WADV WARD WD WPRO WPRO$ WQ X XX
ADJP ADVP AX CONJP CP DP FRAG FS INTJP IP LATIN META NP NX PP PRN QTP REF REP RRC VP
WADJP WADVP WNP WPP WQP XP QUOTE TEXT
"""
_UNIVERSAL = """
ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X
"""
_KNOWN = frozenset({*CONSTITUENTS, *TAGS, OUTER}).union(
    *map(str.split, (_PENN, _CHINESE, _GERMAN, _FRENCH, _HISTORICAL, _UNIVERSAL))
)

_NUMBER_OF_PART = re.compile(r"\d\d?$")
_CASE = re.compile(r"\^[A-Z]$")  # of YCOE: N^D


def is_known(label: str) -> bool:
    """Returns whether a treebank has a label or tag, or all parts of one (P+D)."""
    label = core_label(label)
    if label in _KNOWN:
        return True
    parts = [_CASE.sub("", part) for part in re.split(r"[+|]", label)]
    return all(
        part in _KNOWN or _NUMBER_OF_PART.sub("", part) in _KNOWN for part in parts
    )


def unknown_label(tree: Tree) -> str | None:
    """Returns the first bracket of a prepared tree that no treebank has, for a message.

    It has an unknown label, or in a word's place what looks like an empty category.
    """
    for node, entering in tree.walk():
        if not entering:
            continue
        if node.word is not None and looks_empty(node):
            return f"({node.label} {node.word})"
        if not is_known(node.label):
            return f"({node.label} {'...' if node.word is None else node.word})"
    return None


_MAX_SHARE = 0.01  # of trees


@dataclasses.dataclass
class Survey:
    """Counts of unknown labels and lines.

    Attributes:
        accepts_labels: whether labels that no published treebank has are taken.
        trees: number of trees.
        labels: number of trees with an unknown label.
        lines: number of unknown lines between trees, which are left out.
        first_label: location and bracket of the first unknown label.
        first_line: location and text of the first unknown line.
    """

    accepts_labels: bool = False
    trees: int = 0
    labels: int = 0
    lines: int = 0
    first_label: str = ""
    first_line: str = ""

    def add_tree(self, location: str, tree: Tree) -> None:
        """Counts a prepared tree; `location` is its file:line."""
        self.trees += 1
        if not self.accepts_labels and (bracket := unknown_label(tree)):
            self.labels += 1
            self.first_label = self.first_label or f"{location}: {bracket}"

    def add_line(self, location: str, line: str) -> None:
        """Counts an unknown line between trees."""
        self.lines += 1
        self.first_line = self.first_line or f"{location}: '{line.strip():.60}'"

    def sentences(self) -> list[str]:
        """Returns a sentence about the unknown labels and one about the lines."""
        sentences = []
        if self.labels:
            has = "has" if self.labels == 1 else "have"
            sentences.append(
                f"{self.labels:,} of {_trees(self.trees)} {has} a label that no known "
                f"treebank has, the first at {self.first_label}"
            )
        if self.lines:
            stands = "line stands" if self.lines == 1 else "lines stand"
            sentences.append(
                f"{self.lines:,} unknown {stands} between {_trees(self.trees)}, the "
                f"first at {self.first_line}"
            )
        return sentences

    def check(self) -> None:
        """Refuses a treebank with many unknown labels or lines.

        Raises:
            UserError: more than 1% of the trees have an unknown label, or there are as
                many unknown lines.
        """
        limit = self.trees * _MAX_SHARE
        if self.lines > limit:
            raise UserError(f"{self.sentences()[-1]}; remove lines that are not trees")
        if self.labels > limit:
            raise UserError(
                f"{self.sentences()[0]}; give --new_labels if all labels are "
                "constituents or tags, else remove the brackets that are not"
            )


def _trees(count: int) -> str:
    return quantity(count, "trees")
