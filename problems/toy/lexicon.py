"""The words of the toy grammar: one row per word, in three languages.

A row is written like an entry in a printed dictionary. Forms are separated by slashes;
a noun's article gives its gender; only the first form is written of an English noun or
verb, a French noun, or a French verb in -er if the others are regular:

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
        english=_forms(english, "{0}/{0}s"),
        german=_forms(german),
        french=_forms(french, "{0}/{0}s"),
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
    past = "{0}d" if english.endswith("e") else "{0}ed"
    return Verb(
        _forms(english, "{0}/{0}s/" + past),
        _forms(german),
        _forms(french, "{0}e/{0}e/{0}ent/{0}é/{0}er/{0}er", ending="er"),
        subject,
        object,
        **details,
    )


def _forms(row: str, regular: str = "{0}", ending: str = "") -> tuple[str, ...]:
    """Returns the forms in a row; a single one, less its ending, makes regular ones."""
    forms = row if "/" in row else regular.format(row.removesuffix(ending))
    return tuple(forms.split("/"))


# fmt: off
NOUNS = (
    _noun("man/men", "der Mann/Mannes/Männer", "un homme", ADULT, owned=False),
    _noun("woman/women", "die Frau/Frau/Frauen", "une femme", ADULT, owned=False),
    _noun("child/children", "das Kind/Kindes/Kinder", "un enfant", CHILD),
    _noun("girl", "das Mädchen/Mädchens/Mädchen", "une fille", CHILD, owned=False),
    _noun("boy", "der Junge/Jungen/Jungen", "un garçon", CHILD, owned=False, weak=True),
    _noun("teacher", "der Lehrer/Lehrers/Lehrer", "un professeur", ADULT),
    _noun("king", "der König/Königs/Könige", "un roi", ADULT, owned=False),
    _noun("queen", "die Königin/Königin/Königinnen", "une reine", ADULT, owned=False),
    _noun("dog", "der Hund/Hundes/Hunde", "un chien", ANIMAL),
    _noun("cat", "die Katze/Katze/Katzen", "un chat", ANIMAL),
    _noun("horse", "das Pferd/Pferdes/Pferde", "un cheval/chevaux", ANIMAL),
    _noun("bird", "der Vogel/Vogels/Vögel", "un oiseau/oiseaux", ANIMAL),
    _noun("book", "das Buch/Buches/Bücher", "un livre", TEXT),
    _noun("letter", "der Brief/Briefes/Briefe", "une lettre", TEXT),
    _noun("picture book", "das Bilderbuch/Bilderbuches/Bilderbücher",
          "un livre d'images/livres d'images", TEXT),
    _noun("picture", "das Bild/Bildes/Bilder", "une image", SMALL),
    _noun("hat", "der Hut/Hutes/Hüte", "un chapeau/chapeaux", SMALL),
    _noun("car key", "der Autoschlüssel/Autoschlüssels/Autoschlüssel",
          "une clé de voiture/clés de voiture", SMALL),
    _noun("car", "das Auto/Autos/Autos", "une voiture", LARGE),
    _noun("kitchen table", "der Küchentisch/Küchentisches/Küchentische",
          "une table de cuisine/tables de cuisine", LARGE),
    _noun("apple", "der Apfel/Apfels/Äpfel", "une pomme", FOOD),
    _noun("apple cake", "der Apfelkuchen/Apfelkuchens/Apfelkuchen",
          "un gâteau aux pommes/gâteaux aux pommes", FOOD),
    _noun("potato/potatoes", "die Kartoffel/Kartoffel/Kartoffeln",
          "une pomme de terre/pommes de terre", FOOD),
    _noun("garden", "der Garten/Gartens/Gärten", "un jardin", PLACE),
    _noun("house", "das Haus/Hauses/Häuser", "une maison", PLACE),
    _noun("school", "die Schule/Schule/Schulen", "une école", PLACE),
    _noun("train station", "der Bahnhof/Bahnhofs/Bahnhöfe", "une gare", PLACE,
          owned=False),
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
    _verb("arrive", "komme/kommt/kommen/angekommen", "arriver", ANIMATE,
          german_particle="an", german_sein=True, french_etre=True),
    _verb("see/sees/saw", "sehe/sieht/sehen/gesehen",
          "vois/voit/voient/vu/voir/verr", ANIMATE, EVERYTHING, place=True),
    _verb("look", "sehe/sieht/sehen/angesehen", "regarder", ANIMATE, EVERYTHING,
          english_preposition="at", german_particle="an"),
    _verb("look", "suche/sucht/suchen/gesucht", "chercher", ANIMATE, EVERYTHING,
          place=True, english_preposition="for"),
    _verb("buy/buys/bought", "kaufe/kauft/kaufen/gekauft",
          "achète/achète/achètent/acheté/acheter/achèter", PERSON,
          ANIMAL | GOODS | PLACE),
    _verb("eat/eats/ate", "esse/isst/essen/gegessen", "manger", PERSON, FOOD,
          place=True),
    _verb("write/writes/wrote", "schreibe/schreibt/schreiben/geschrieben",
          "écris/écrit/écrivent/écrit/écrire/écrir", PERSON, TEXT, place=True),
    _verb("open", "mache/macht/machen/aufgemacht",
          "ouvre/ouvre/ouvrent/ouvert/ouvrir/ouvrir", PERSON, TEXT, place=True,
          german_particle="auf"),
    _verb("pick", "hebe/hebt/heben/aufgehoben", "ramasser", PERSON, PORTABLE,
          place=True, english_particle="up", german_particle="auf"),
    _verb("call", "rufe/ruft/rufen/angerufen",
          "appelle/appelle/appellent/appelé/appeler/appeller", PERSON, PERSON,
          german_particle="an"),
    _verb("help", "helfe/hilft/helfen/geholfen", "aider", ANIMATE, PERSON, place=True,
          german_case="dative"),
    _verb("listen", "höre/hört/hören/zugehört", "écouter", ANIMATE, PERSON,
          english_preposition="to", german_particle="zu", german_case="dative"),
    _verb("wait", "warte/wartet/warten/gewartet",
          "attends/attend/attendent/attendu/attendre/attendr", ANIMATE, ANIMATE,
          place=True, english_preposition="for", german_preposition="auf"),
    _verb("play", "spiele/spielt/spielen/gespielt", "jouer", ANIMATE, ANIMATE,
          place=True, english_preposition="with", german_preposition="mit",
          german_case="dative", french_preposition="avec"),
    _verb("talk", "spreche/spricht/sprechen/gesprochen", "parler", PERSON, PERSON,
          place=True, english_preposition="to", german_preposition="mit",
          german_case="dative", french_preposition="à"),
    _verb("give/gives/gave", "gebe/gibt/geben/gegeben", "donner", PERSON, GOODS,
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
