"""The words of the toy grammar, one per row, as in a printed dictionary.

Forms are separated by slashes. Letters name classes of nouns, so that kings open
letters and apples do not:

    a adult, c child, b animal, t text, s small thing, l large thing, f food, p place
"""

from typing import NamedTuple

PERSON = "ac"
CASES = ("nominative", "accusative", "dative", "genitive")
ARTICLES = ("der", "die", "das")
PLURAL = 3  # the column after the articles'
Endings = dict[str, list[str]]


def _endings(*rows: str) -> Endings:
    """Returns endings by case, for masculine, feminine, neuter and plural."""
    endings = {}
    for case, row in zip(CASES, rows, strict=True):
        endings[case] = [ending.strip("-") for ending in row.split()]
    return endings


STRONG = _endings("er e es e", "en e es e", "em er em en", "es er es er")  # dieser
EIN = _endings("- e - e", "en e - e", "em er em en", "es er es er")
DER = _endings("er ie as ie", "en ie as ie", "em er em en", "es er es er")
NONE = _endings("- - - -", "- - - -", "- - - -", "- - - -")
WEAK = _endings("e e e en", "en e e en", "en en en en", "en en en en")  # der alte
MIXED = _endings("er e es en", "en e es en", "en en en en", "en en en en")  # ein alter
RELATIVE = _endings("er ie as ie", "en ie as ie", "em er em enen", "- - - -")


class Noun(NamedTuple):
    """A noun or a compound."""

    noun_class: str
    english: str  # singular, plural
    article: str  # in German
    german: str  # nominative, genitive, plural

    def declined(self, case: str, plural: bool) -> str:
        """Returns the German noun in its case: den Hunden, des Hundes, den Jungen."""
        nominative, genitive, plural_form = self.german.split("/")
        if plural:
            adds_n = case == "dative" and not plural_form.endswith(("n", "s"))
            return plural_form + "n" * adds_n
        is_weak = self.article == "der" and genitive == plural_form
        oblique = is_weak and case != "nominative"
        return genitive if case == "genitive" or oblique else nominative


class Verb(NamedTuple):
    """A verb, and the classes of its subjects and objects.

    `follows` is a preposition (wait for, warte auf), or ends in a hyphen: an
    English particle (pick up-) or a separable German prefix (hebe auf-).
    """

    subject: str
    object: str
    english: str  # base, third person, past
    follows: str
    german: str  # ich, er, sie (plural), participle
    german_follows: str
    case: str  # of the object in German


def _rows(text: str) -> list[list[str]]:
    rows = []
    for row in text.strip().split("\n"):
        rows.append([cell.strip() for cell in row.split("|")])
    return rows


NOUNS = [
    Noun(*row)
    for row in _rows(
        """
        a | man/men                     | der | Mann/Mannes/Männer
        a | woman/women                 | die | Frau/Frau/Frauen
        a | teacher/teachers            | der | Lehrer/Lehrers/Lehrer
        a | king/kings                  | der | König/Königs/Könige
        a | queen/queens                | die | Königin/Königin/Königinnen
        c | child/children              | das | Kind/Kindes/Kinder
        c | girl/girls                  | das | Mädchen/Mädchens/Mädchen
        c | boy/boys                    | der | Junge/Jungen/Jungen
        b | dog/dogs                    | der | Hund/Hundes/Hunde
        b | cat/cats                    | die | Katze/Katze/Katzen
        b | horse/horses                | das | Pferd/Pferdes/Pferde
        b | bird/birds                  | der | Vogel/Vogels/Vögel
        t | book/books                  | das | Buch/Buches/Bücher
        t | letter/letters              | der | Brief/Briefes/Briefe
        t | picture book/picture books  | das | Bilderbuch/Bilderbuches/Bilderbücher
        s | picture/pictures            | das | Bild/Bildes/Bilder
        s | hat/hats                    | der | Hut/Hutes/Hüte
        s | car key/car keys        | der | Autoschlüssel/Autoschlüssels/Autoschlüssel
        l | car/cars                    | das | Auto/Autos/Autos
        l | kitchen table/kitchen tables | der | Küchentisch/Küchentisches/Küchentische
        f | apple/apples                | der | Apfel/Apfels/Äpfel
        f | apple cake/apple cakes      | der | Apfelkuchen/Apfelkuchens/Apfelkuchen
        f | potato/potatoes             | die | Kartoffel/Kartoffel/Kartoffeln
        p | garden/gardens              | der | Garten/Gartens/Gärten
        p | house/houses                | das | Haus/Hauses/Häuser
        p | school/schools              | die | Schule/Schule/Schulen
        p | train station/train stations | der | Bahnhof/Bahnhofs/Bahnhöfe
        """
    )
]

# Classes of nouns, English, German.
ADJECTIVES = _rows(
    """
    abtslfp  | old       | alt
    acbtslfp | small     | klein
    acbtslp  | beautiful | schön
    tslp     | new       | neu
    tsl      | red       | rot
    tsl      | green     | grün
    bsl      | black     | schwarz
    bslp     | white     | weiß
    acb      | clever    | klug
    acb      | happy     | glücklich
    acb      | tired     | müde
    """
)

*VERBS, SAY, KNOW = (
    Verb(*row)
    for row in _rows(
        """
acb|         |sleep/sleeps/slept    | |schlafe/schläft/schlafen/geschlafen| |accusative
acb|         |arrive/arrives/arrived| |komme/kommt/kommen/ist angekommen|an-|accusative
acb|acbtslfp |see/sees/saw          |   |sehe/sieht/sehen/gesehen      |    |accusative
acb|acbtslfp |look/looks/looked     |at |sehe/sieht/sehen/angesehen    |an- |accusative
acb|acbtslfp |look/looks/looked     |for|suche/sucht/suchen/gesucht    |    |accusative
ac |btslfp   |buy/buys/bought       |   |kaufe/kauft/kaufen/gekauft    |    |accusative
ac |f        |eat/eats/ate          |   |esse/isst/essen/gegessen      |    |accusative
ac |t        |write/writes/wrote|  |schreibe/schreibt/schreiben/geschrieben||accusative
ac |t        |open/opens/opened     |   |mache/macht/machen/aufgemacht |auf-|accusative
ac |tsf      |pick/picks/picked     |up-|hebe/hebt/heben/aufgehoben    |auf-|accusative
ac |ac       |call/calls/called     |   |rufe/ruft/rufen/angerufen     |an- |accusative
acb|ac       |help/helps/helped     |   |helfe/hilft/helfen/geholfen   |    |dative
acb|ac       |listen/listens/listened|to|höre/hört/hören/zugehört      |zu- |dative
acb|acb      |wait/waits/waited     |for|warte/wartet/warten/gewartet  |auf |accusative
acb|acb      |play/plays/played     |with|spiele/spielt/spielen/gespielt|mit|dative
ac |         |say/says/said         |   |sage/sagt/sagen/gesagt        |    |accusative
ac |         |know/knows/knew       |   |weiß/weiß/wissen/gewusst      |    |accusative
        """
    )
)

# Leaf, German stem and endings, endings of an adjective after it.
Determiner = tuple[str, str, Endings, Endings]
THE: Determiner = ("(DT the)", "d", DER, WEAK)
A: Determiner = ("(DT a)", "ein", EIN, MIXED)
MY: Determiner = ("(PRP$ my)", "mein", EIN, MIXED)
THIS: Determiner = ("(DT this)", "dies", STRONG, WEAK)
THESE: Determiner = ("(DT these)", "dies", STRONG, WEAK)
EVERY: Determiner = ("(DT every)", "jed", STRONG, WEAK)
TWO: Determiner = ("(CD two)", "zwei", NONE, STRONG)
BARE: Determiner = ("", "", NONE, STRONG)
# For the singular and for the plural.
Determiners = tuple[tuple[Determiner, ...], tuple[Determiner, ...]]
ANY: Determiners = (THE, THE, A, MY, THIS, EVERY), (THE, THE, BARE, MY, THESE, TWO)
DEFINITE: Determiners = (THE, THE, MY, THIS), (THE, THE, MY, THESE)

# Person (0 I, 1 he, 2 they), English subject/object, German cases but the genitive.
PRONOUNS = _rows(
    """
    0 | I/me      | ich/mich/mir
    1 | he/him    | er/ihn/ihm
    1 | she/her   | sie/sie/ihr
    2 | they/them | sie/sie/ihnen
    """
)
