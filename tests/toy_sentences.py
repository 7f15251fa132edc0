"""Sentences of the toy grammar, written by hand in three languages and as trees."""

from t2t_keras.problems.toy import lexicon as words
from t2t_keras.problems.toy.grammar import (
    Clause,
    Coordination,
    NounPhrase,
    Place,
    Sentence,
    Subordinate,
    Tense,
    Trace,
)

PAST, FUTURE, CAN = Tense.PAST, Tense.FUTURE, Tense.CAN
THE, A, BARE, MY, THIS = words.THE, words.A, words.BARE, words.MY, words.THIS
ME, HE, SHE, THEY = words.PRONOUNS
SAY, KNOW = words.REPORTS
BE = words.BE

NOUNS = {form: noun for noun in words.NOUNS for form in noun.english}
ADJECTIVES = {adjective.english: adjective for adjective in words.ADJECTIVES}
VERBS = {verb.name: verb for verb in words.VERBS}


def np(determiner, text, **parts):
    """np(THE, "old black dogs"): the noun is what the adjectives leave."""
    adjectives = []
    while text not in NOUNS:
        first, text = text.split(" ", 1)
        adjectives.append(ADJECTIVES[first])
    noun = NOUNS[text]
    is_plural = text == noun.english[1]
    return NounPhrase(determiner, noun, is_plural, tuple(adjectives), **parts)


def does(subject, verb, object=None, tense=Tense.PRESENT, **parts):
    return Clause(subject, VERBS[verb], tense, object=object, **parts)


def is_(subject, predicate, **parts):
    return Clause(subject, BE, predicate=ADJECTIVES[predicate], **parts)


def joined(main, conjunction, clause):
    return Sentence(main, subordinate=Subordinate(conjunction, clause))


def trace(noun):
    return Trace(NOUNS[noun], plural=noun == NOUNS[noun].english[1])


# Written by hand: what each derivation must read in the three languages.
SENTENCES = [
    (  # separable verb, weak adjective in the accusative; elision, vieux
        Sentence(does(ME, "call", np(THE, "old teacher"))),
        "I call the old teacher.",
        "Ich rufe den alten Lehrer an.",
        "J'appelle le vieux professeur.",
    ),
    (  # a dative object in the perfect; ne ... pas around the auxiliary
        Sentence(
            does(np(THE, "girl"), "listen to", np(THE, "king"), PAST, negated=True)
        ),
        "The girl did not listen to the king.",
        "Das Mädchen hat dem König nicht zugehört.",
        "La fille n'a pas écouté le roi.",
    ),
    (  # verb-final perfect; a clitic, and the participle that agrees with it
        joined(
            does(np(THE, "boy"), "sleep"),
            words.BECAUSE,
            does(np(THE, "clever women"), "call", SHE, PAST),
        ),
        "The boy sleeps because the clever women called her.",
        "Der Junge schläft, weil die klugen Frauen sie angerufen haben.",
        "Le garçon dort parce que les femmes intelligentes l'ont appelée.",
    ),
    (  # a separable verb in one word
        joined(Clause(SHE, SAY), words.THAT, does(np(words.TWO, "birds"), "arrive")),
        "She says that two birds arrive.",
        "Sie sagt, dass zwei Vögel ankommen.",
        "Elle dit que deux oiseaux arrivent.",
    ),
    (  # inversion after a clause, dative plural; s'il, aux
        joined(
            does(
                np(THE, "queen"),
                "give",
                np(BARE, "apple cakes"),
                FUTURE,
                recipient=np(THE, "children"),
            ),
            words.IF,
            does(HE, "arrive"),
        ),
        "If he arrives, the queen will give the children apple cakes.",
        "Wenn er ankommt, wird die Königin den Kindern Apfelkuchen geben.",
        "S'il arrive, la reine donnera des gâteaux aux pommes aux enfants.",
    ),
    (  # sein and être; a participle that agrees with two women
        Sentence(
            does(Coordination(np(THE, "woman"), np(MY, "cat")), "arrive", None, PAST),
            words.YESTERDAY,
        ),
        "Yesterday the woman and my cat arrived.",
        "Gestern sind die Frau und meine Katze angekommen.",
        "Hier, la femme et mon chat sont arrivés.",
    ),
    (
        Sentence(does(np(THE, "young queens"), "arrive", None, PAST)),
        "The young queens arrived.",
        "Die jungen Königinnen sind angekommen.",
        "Les jeunes reines sont arrivées.",
    ),
    (  # kein- with mixed endings, a compound; pas de, adjective after the noun
        Sentence(does(HE, "buy", np(A, "red car key"), negated=True)),
        "He does not buy a red car key.",
        "Er kauft keinen roten Autoschlüssel.",
        "Il n'achète pas de clé de voiture rouge.",
    ),
    (  # the genitive, im; du, one adjective on either side
        Sentence(
            Clause(
                np(None, "old black dog", owner=np(THE, "king")),
                BE,
                place=Place(words.IN, np(THE, "garden")),
            )
        ),
        "The king's old black dog is in the garden.",
        "Der alte schwarze Hund des Königs ist im Garten.",
        "Le vieux chien noir du roi est dans le jardin.",
    ),
    (  # a relative pronoun in the dative; vieil
        Sentence(
            does(
                np(
                    THE,
                    "child",
                    relative=does(np(THE, "old man"), "help", trace("child"), PAST),
                ),
                "sleep",
                None,
                PAST,
            )
        ),
        "The child whom the old man helped slept.",
        "Das Kind, dem der alte Mann geholfen hat, hat geschlafen.",
        "L'enfant que le vieil homme a aidé a dormi.",
    ),
    (  # auf with the accusative, a weak noun, mein- in the neuter
        Sentence(
            does(
                np(
                    THE,
                    "woman",
                    relative=does(trace("woman"), "wait for", np(THE, "boy")),
                ),
                "see",
                np(MY, "beautiful house"),
                CAN,
                negated=True,
            )
        ),
        "The woman who waits for the boy cannot see my beautiful house.",
        "Die Frau, die auf den Jungen wartet, kann mein schönes Haus nicht sehen.",
        "La femme qui attend le garçon ne peut pas voir ma belle maison.",
    ),
    (  # a question; cet, aux
        Sentence(
            does(np(THIS, "child"), "talk to", np(THE, "happy girls"), PAST),
            is_question=True,
        ),
        "Did this child talk to the happy girls?",
        "Hat dieses Kind mit den glücklichen Mädchen gesprochen?",
        "Est-ce que cet enfant a parlé aux filles heureuses ?",
    ),
    (  # strong endings; de before an adjective, à côté de l'
        Sentence(
            does(
                np(words.EVERY, "boy"),
                "look for",
                np(BARE, "old pictures"),
                place=Place(words.NEXT_TO, np(THE, "school")),
            )
        ),
        "Every boy looks for old pictures next to the school.",
        "Jeder Junge sucht alte Bilder neben der Schule.",
        "Chaque garçon cherche de vieilles images à côté de l'école.",
    ),
    (  # the place before the object with a preposition; -n of the dative plural
        Sentence(
            does(
                np(THE, "dogs"),
                "play with",
                np(words.TWO, "small birds"),
                place=Place(words.IN_FRONT_OF, np(A, "train station")),
            )
        ),
        "The dogs play with two small birds in front of a train station.",
        "Die Hunde spielen vor einem Bahnhof mit zwei kleinen Vögeln.",
        "Les chiens jouent avec deux petits oiseaux devant une gare.",
    ),
    (  # a particle behind a relative clause; the participle agrees with que
        Sentence(
            does(
                THEY,
                "open",
                np(
                    THE,
                    "white letter",
                    relative=does(ME, "write", trace("letter"), PAST),
                ),
            )
        ),
        "They open the white letter that I wrote.",
        "Sie machen den weißen Brief, den ich geschrieben habe, auf.",
        "Ils ouvrent la lettre blanche que j'ai écrite.",
    ),
    (  # verb second after an adverb; one word that becomes three
        Sentence(does(SHE, "pick", np(A, "potato")), words.NOW),
        "Now she picks up a potato.",
        "Jetzt hebt sie eine Kartoffel auf.",
        "Maintenant, elle ramasse une pomme de terre.",
    ),
    (  # predicates: uninflected in German, agreeing in French
        joined(
            is_(np(THE, "young horses"), "tired"),
            words.IF,
            is_(np(THIS, "house"), "white", negated=True),
        ),
        "If this house is not white, the young horses are tired.",
        "Wenn dieses Haus nicht weiß ist, sind die jungen Pferde müde.",
        "Si cette maison n'est pas blanche, les jeunes chevaux sont fatigués.",
    ),
    (  # a pronoun as the recipient
        Sentence(
            does(np(THE, "teacher"), "give", np(A, "big hat"), FUTURE, recipient=HE),
            words.TOMORROW,
        ),
        "Tomorrow the teacher will give him a big hat.",
        "Morgen wird der Lehrer ihm einen großen Hut geben.",
        "Demain, le professeur lui donnera un grand chapeau.",
    ),
    (  # negation before an object with a preposition; a pronoun after avec
        Sentence(does(np(THIS, "tired girls"), "play with", THEY, negated=True)),
        "These tired girls do not play with them.",
        "Diese müden Mädchen spielen nicht mit ihnen.",
        "Ces filles fatiguées ne jouent pas avec eux.",
    ),
    (  # the first person of be; an owner behind a place
        Sentence(
            Clause(
                ME,
                BE,
                place=Place(words.BEHIND, np(None, "car", owner=np(THIS, "small boy"))),
            )
        ),
        "I am behind this small boy's car.",
        "Ich bin hinter dem Auto dieses kleinen Jungen.",
        "Je suis derrière la voiture de ce petit garçon.",
    ),
    (  # look AT, and sehen ... an: not to look for, not to see
        joined(
            Clause(np(THE, "woman"), KNOW),
            words.THAT,
            does(HE, "look at", np(MY, "new kitchen table")),
        ),
        "The woman knows that he looks at my new kitchen table.",
        "Die Frau weiß, dass er meinen neuen Küchentisch ansieht.",
        "La femme sait qu'il regarde ma nouvelle table de cuisine.",
    ),
]
ENGLISH = [english for _, english, _, _ in SENTENCES]

TREES = {
    "He does not buy a red car key.": (
        "(S (NP (PRP He)) (VP (VBZ does) (RB not) (VP (VB buy) (NP (DT a) (JJ red) "
        "(NN car) (NN key)))) (. .))"
    ),
    "The king's old black dog is in the garden.": (
        "(S (NP (NP (DT The) (NN king) (POS 's)) (JJ old) (JJ black) (NN dog)) "
        "(VP (VBZ is) (PP (IN in) (NP (DT the) (NN garden)))) (. .))"
    ),
    "The child whom the old man helped slept.": (
        "(S (NP (NP (DT The) (NN child)) (SBAR (WHNP (WP whom)) (S (NP (DT the) "
        "(JJ old) (NN man)) (VP (VBD helped))))) (VP (VBD slept)) (. .))"
    ),
    "Did this child talk to the happy girls?": (
        "(SQ (VBD Did) (NP (DT this) (NN child)) (VP (VB talk) (PP (TO to) "
        "(NP (DT the) (JJ happy) (NNS girls)))) (. ?))"
    ),
    "If this house is not white, the young horses are tired.": (
        "(S (SBAR (IN If) (S (NP (DT this) (NN house)) (VP (VBZ is) (RB not) "
        "(ADJP (JJ white))))) (, ,) (NP (DT the) (JJ young) (NNS horses)) "
        "(VP (VBP are) (ADJP (JJ tired))) (. .))"
    ),
    "Now she picks up a potato.": (
        "(S (ADVP (RB Now)) (NP (PRP she)) (VP (VBZ picks) (PRT (RP up)) "
        "(NP (DT a) (NN potato))) (. .))"
    ),
}
