"""The words of the toy grammar: one row per word, in three languages.

A row is written like an entry in a printed dictionary. Forms are separated by slashes;
a noun's article gives its gender:

    noun        English singular/plural, German nominative/genitive/plural, French
                singular/plural
    verb        English base/third person/past, German ich/er/sie(plural)/participle,
                French je/il/ils/participle/infinitive/stem of the future
    adjective   English, German, French masculine/feminine/masculine plural/before a
                vowel (the last two where they are not regular)
"""

import dataclasses
import enum
from typing import Any, Literal


class Kind(enum.Flag):
    """Semantic classes of nouns, so that kings write letters and apples do not."""

    ADULT = enum.auto()
    CHILD = enum.auto()  # takes neither "old" nor "young"
    ANIMAL = enum.auto()
    TEXT = enum.auto()
    SMALL = enum.auto()  # things that one can pick up
    LARGE = enum.auto()  # things that one cannot pick up
    FOOD = enum.auto()
    PLACE = enum.auto()


ADULT, CHILD, ANIMAL, TEXT, SMALL, LARGE, FOOD, PLACE = Kind
NOTHING = Kind(0)
PERSON = ADULT | CHILD
ANIMATE = PERSON | ANIMAL
PORTABLE = TEXT | SMALL | FOOD
GOODS = PORTABLE | LARGE
EVERYTHING = ANIMATE | GOODS | PLACE


@dataclasses.dataclass(frozen=True, eq=False)
class Noun:
    """A noun or a compound."""

    english: tuple[str, ...]  # singular, plural
    german: tuple[str, ...]  # nominative, genitive, plural
    french: tuple[str, ...]  # singular, plural
    german_article: str
    french_article: str
    kind: Kind
    owned: bool = True  # can have an owner: "my dog", but not "my man"
    weak: bool = False  # German: all cases but the nominative end in -n


@dataclasses.dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; in French it stands before or after its noun."""

    english: str
    german: str
    french: tuple[str, ...]  # masculine, feminine, masculine plural, before a vowel
    kind: Kind  # the kinds of nouns that it can describe
    before: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Verb:
    """A verb with its forms, and the kinds of its arguments."""

    english: tuple[str, ...]  # base, third person, past
    german: tuple[str, ...]  # ich, er, sie (plural), participle
    french: tuple[str, ...]  # je, il, ils, participle, infinitive, stem of the future
    subject: Kind
    object: Kind = NOTHING  # intransitive
    recipient: Kind = NOTHING  # no indirect object
    place: bool = False  # whether it can have a place
    english_particle: str = ""  # picks UP
    english_preposition: str = ""  # waits FOR
    german_particle: str = ""  # ruft AN
    german_preposition: str = ""  # wartet AUF
    german_case: Literal["accusative", "dative"] = "accusative"  # the object's case
    german_sein: bool = False  # IST angekommen
    french_preposition: str = ""  # parle À
    french_etre: bool = False  # EST arrivé

    @property
    def name(self) -> str:
        """The verb with its particle or preposition: look at, look for."""
        return " ".join(filter(None, (self.english[0], self.english_preposition)))


@dataclasses.dataclass(frozen=True, eq=False)
class Determiner:
    """A determiner; its forms are in the modules of the languages."""

    english: str  # "": a bare plural
    definite: bool
    singular: bool = True
    plural: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Pronoun:
    """A personal pronoun; French "they" are masculine, and so am "I"."""

    english: tuple[str, ...]  # subject, object
    german: tuple[str, ...]  # nominative, accusative, dative
    french: tuple[str, ...]  # subject, direct, indirect, after a preposition
    plural: bool = False
    feminine: bool = False
    first_person: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Uninflected:
    """A preposition of place (in German with the dative), an adverb, a conjunction."""

    english: str
    german: str
    french: str


def _noun(english: str, german: str, french: str, kind: Kind, **details: bool) -> Noun:
    """Parses a row for a noun."""
    german_article, german = german.split(" ", 1)
    french_article, french = french.split(" ", 1)
    return Noun(
        english=_forms(english),
        german=_forms(german),
        french=_forms(french),
        german_article=german_article,
        french_article=french_article,
        kind=kind,
        **details,
    )


def _adjective(
    english: str, german: str, french: str, kind: Kind, before: bool = False
) -> Adjective:
    """Parses a row for an adjective."""
    masculine, *others = _forms(french)
    regular = (masculine + "e", masculine + "s", masculine)
    forms = (masculine, *others, *regular[len(others) :])
    return Adjective(english, german, forms, kind, before)


def _verb(
    english: str,
    german: str,
    french: str,
    subject: Kind,
    object: Kind = NOTHING,
    **details: Any,
) -> Verb:
    """Parses a row for a verb."""
    forms = _forms(english), _forms(german), _forms(french)
    return Verb(*forms, subject, object, **details)


def _forms(row: str) -> tuple[str, ...]:
    return tuple(row.split("/"))


# fmt: off
NOUNS = (
    _noun("man/men", "der Mann/Mannes/Männer", "un homme/hommes", ADULT, owned=False),
    _noun("woman/women", "die Frau/Frau/Frauen", "une femme/femmes", ADULT,
          owned=False),
    _noun("child/children", "das Kind/Kindes/Kinder", "un enfant/enfants", CHILD),
    _noun("girl/girls", "das Mädchen/Mädchens/Mädchen", "une fille/filles", CHILD,
          owned=False),
    _noun("boy/boys", "der Junge/Jungen/Jungen", "un garçon/garçons", CHILD,
          owned=False, weak=True),
    _noun("teacher/teachers", "der Lehrer/Lehrers/Lehrer",
          "un professeur/professeurs", ADULT),
    _noun("king/kings", "der König/Königs/Könige", "un roi/rois", ADULT, owned=False),
    _noun("queen/queens", "die Königin/Königin/Königinnen", "une reine/reines", ADULT,
          owned=False),
    _noun("dog/dogs", "der Hund/Hundes/Hunde", "un chien/chiens", ANIMAL),
    _noun("cat/cats", "die Katze/Katze/Katzen", "un chat/chats", ANIMAL),
    _noun("horse/horses", "das Pferd/Pferdes/Pferde", "un cheval/chevaux", ANIMAL),
    _noun("bird/birds", "der Vogel/Vogels/Vögel", "un oiseau/oiseaux", ANIMAL),
    _noun("book/books", "das Buch/Buches/Bücher", "un livre/livres", TEXT),
    _noun("letter/letters", "der Brief/Briefes/Briefe", "une lettre/lettres", TEXT),
    _noun("picture book/picture books", "das Bilderbuch/Bilderbuches/Bilderbücher",
          "un livre d'images/livres d'images", TEXT),
    _noun("picture/pictures", "das Bild/Bildes/Bilder", "une image/images", SMALL),
    _noun("hat/hats", "der Hut/Hutes/Hüte", "un chapeau/chapeaux", SMALL),
    _noun("car key/car keys", "der Autoschlüssel/Autoschlüssels/Autoschlüssel",
          "une clé de voiture/clés de voiture", SMALL),
    _noun("car/cars", "das Auto/Autos/Autos", "une voiture/voitures", LARGE),
    _noun("kitchen table/kitchen tables",
          "der Küchentisch/Küchentisches/Küchentische",
          "une table de cuisine/tables de cuisine", LARGE),
    _noun("apple/apples", "der Apfel/Apfels/Äpfel", "une pomme/pommes", FOOD),
    _noun("apple cake/apple cakes", "der Apfelkuchen/Apfelkuchens/Apfelkuchen",
          "un gâteau aux pommes/gâteaux aux pommes", FOOD),
    _noun("potato/potatoes", "die Kartoffel/Kartoffel/Kartoffeln",
          "une pomme de terre/pommes de terre", FOOD),
    _noun("garden/gardens", "der Garten/Gartens/Gärten", "un jardin/jardins", PLACE),
    _noun("house/houses", "das Haus/Hauses/Häuser", "une maison/maisons", PLACE),
    _noun("school/schools", "die Schule/Schule/Schulen", "une école/écoles", PLACE),
    _noun("train station/train stations", "der Bahnhof/Bahnhofs/Bahnhöfe",
          "une gare/gares", PLACE, owned=False),
)

ADJECTIVES = (
    _adjective("old", "alt", "vieux/vieille/vieux/vieil", EVERYTHING & ~CHILD,
               before=True),
    _adjective("young", "jung", "jeune/jeune", ADULT | ANIMAL, before=True),
    _adjective("big", "groß", "grand", EVERYTHING & ~PERSON, before=True),
    _adjective("small", "klein", "petit", EVERYTHING, before=True),
    _adjective("beautiful", "schön", "beau/belle/beaux/bel", EVERYTHING & ~FOOD,
               before=True),
    _adjective("new", "neu", "nouveau/nouvelle/nouveaux/nouvel",
               TEXT | SMALL | LARGE | PLACE, before=True),
    _adjective("red", "rot", "rouge/rouge", TEXT | SMALL | LARGE),
    _adjective("green", "grün", "vert", TEXT | SMALL | LARGE),
    _adjective("black", "schwarz", "noir", ANIMAL | SMALL | LARGE),
    _adjective("white", "weiß", "blanc/blanche", ANIMAL | SMALL | LARGE | PLACE),
    _adjective("clever", "klug", "intelligent", ANIMATE),
    _adjective("happy", "glücklich", "heureux/heureuse/heureux", ANIMATE),
    _adjective("tired", "müde", "fatigué", ANIMATE),
)

VERBS = (
    _verb("sleep/sleeps/slept", "schlafe/schläft/schlafen/geschlafen",
          "dors/dort/dorment/dormi/dormir/dormir", ANIMATE, place=True),
    _verb("arrive/arrives/arrived", "komme/kommt/kommen/angekommen",
          "arrive/arrive/arrivent/arrivé/arriver/arriver", ANIMATE,
          german_particle="an", german_sein=True, french_etre=True),
    _verb("see/sees/saw", "sehe/sieht/sehen/gesehen",
          "vois/voit/voient/vu/voir/verr", ANIMATE, EVERYTHING, place=True),
    _verb("look/looks/looked", "sehe/sieht/sehen/angesehen",
          "regarde/regarde/regardent/regardé/regarder/regarder", ANIMATE,
          EVERYTHING, english_preposition="at", german_particle="an"),
    _verb("look/looks/looked", "suche/sucht/suchen/gesucht",
          "cherche/cherche/cherchent/cherché/chercher/chercher", ANIMATE,
          EVERYTHING, place=True, english_preposition="for"),
    _verb("buy/buys/bought", "kaufe/kauft/kaufen/gekauft",
          "achète/achète/achètent/acheté/acheter/achèter", PERSON,
          ANIMAL | GOODS | PLACE),
    _verb("eat/eats/ate", "esse/isst/essen/gegessen",
          "mange/mange/mangent/mangé/manger/manger", PERSON, FOOD, place=True),
    _verb("write/writes/wrote", "schreibe/schreibt/schreiben/geschrieben",
          "écris/écrit/écrivent/écrit/écrire/écrir", PERSON, TEXT, place=True),
    _verb("open/opens/opened", "mache/macht/machen/aufgemacht",
          "ouvre/ouvre/ouvrent/ouvert/ouvrir/ouvrir", PERSON, TEXT, place=True,
          german_particle="auf"),
    _verb("pick/picks/picked", "hebe/hebt/heben/aufgehoben",
          "ramasse/ramasse/ramassent/ramassé/ramasser/ramasser", PERSON, PORTABLE,
          place=True, english_particle="up", german_particle="auf"),
    _verb("call/calls/called", "rufe/ruft/rufen/angerufen",
          "appelle/appelle/appellent/appelé/appeler/appeller", PERSON, PERSON,
          german_particle="an"),
    _verb("help/helps/helped", "helfe/hilft/helfen/geholfen",
          "aide/aide/aident/aidé/aider/aider", ANIMATE, PERSON, place=True,
          german_case="dative"),
    _verb("listen/listens/listened", "höre/hört/hören/zugehört",
          "écoute/écoute/écoutent/écouté/écouter/écouter", ANIMATE, PERSON,
          english_preposition="to", german_particle="zu", german_case="dative"),
    _verb("wait/waits/waited", "warte/wartet/warten/gewartet",
          "attends/attend/attendent/attendu/attendre/attendr", ANIMATE, ANIMATE,
          place=True, english_preposition="for", german_preposition="auf"),
    _verb("play/plays/played", "spiele/spielt/spielen/gespielt",
          "joue/joue/jouent/joué/jouer/jouer", ANIMATE, ANIMATE, place=True,
          english_preposition="with", german_preposition="mit", german_case="dative",
          french_preposition="avec"),
    _verb("talk/talks/talked", "spreche/spricht/sprechen/gesprochen",
          "parle/parle/parlent/parlé/parler/parler", PERSON, PERSON, place=True,
          english_preposition="to", german_preposition="mit", german_case="dative",
          french_preposition="à"),
    _verb("give/gives/gave", "gebe/gibt/geben/gegeben",
          "donne/donne/donnent/donné/donner/donner", PERSON, GOODS,
          recipient=PERSON),
)

BE = _verb("be/is/was", "bin/ist/sind/gewesen", "suis/est/sont/été/être/ser",
           EVERYTHING)

# These take a whole clause: "says that ...".
REPORTS = (
    _verb("say/says/said", "sage/sagt/sagen/gesagt",
          "dis/dit/disent/dit/dire/dir", PERSON),
    _verb("know/knows/knew", "weiß/weiß/wissen/gewusst",
          "sais/sait/savent/su/savoir/saur", PERSON),
)

THE = Determiner("the", definite=True)
A = Determiner("a", definite=False, plural=False)
BARE = Determiner("", definite=False, singular=False)
MY = Determiner("my", definite=True)
THIS = Determiner("this", definite=True)
EVERY = Determiner("every", definite=False, plural=False)
TWO = Determiner("two", definite=False, singular=False)
DETERMINERS = (THE, A, BARE, MY, THIS, EVERY, TWO)

ME = Pronoun(("I", "me"), ("ich", "mich", "mir"), ("je", "me", "me", "moi"),
             first_person=True)
HE = Pronoun(("he", "him"), ("er", "ihn", "ihm"), ("il", "le", "lui", "lui"))
SHE = Pronoun(("she", "her"), ("sie", "sie", "ihr"), ("elle", "la", "lui", "elle"),
              feminine=True)
THEY = Pronoun(("they", "them"), ("sie", "sie", "ihnen"), ("ils", "les", "leur", "eux"),
               plural=True)
PRONOUNS = (ME, HE, SHE, THEY)

IN = Uninflected("in", "in", "dans")
BEHIND = Uninflected("behind", "hinter", "derrière")
IN_FRONT_OF = Uninflected("in front of", "vor", "devant")
NEXT_TO = Uninflected("next to", "neben", "à côté de")
PREPOSITIONS = (IN, BEHIND, IN_FRONT_OF, NEXT_TO)

TODAY = Uninflected("today", "heute", "aujourd'hui")
NOW = Uninflected("now", "jetzt", "maintenant")
TOMORROW = Uninflected("tomorrow", "morgen", "demain")
YESTERDAY = Uninflected("yesterday", "gestern", "hier")

THAT = Uninflected("that", "dass", "que")
BECAUSE = Uninflected("because", "weil", "parce que")
IF = Uninflected("if", "wenn", "si")
# fmt: on
