"""Dutch: "Ik kijk even in het bestand.", "Laat me dat opzoeken:", "Een momentje."."""

from proxy.guardrails.announcements.cues import Cues, Script

DUTCH = Cues(
    language="nl",
    script=Script.LATIN,
    openings="""
        ik ga, ik zal, ga ik, laat me, laat mij, laten we, ik moet eerst, eerst moet ik,
        ik wil eerst, ik ben aan het, ik ben bezig met""",
    fillers="""
        nu, dan, even, eerst, meteen, direct, snel, gelijk, ook, zo, nog, dus, eerst even,
        nu even""",
    gap=9,
    acts="""
        kijken, bekijken, nakijken, opzoeken, zoeken, doorzoeken, uitzoeken, nagaan,
        controleren, checken, ophalen, opvragen, halen, laden, downloaden, uploaden, openen,
        lezen, doorlezen, inlezen, uitlezen, analyseren, onderzoeken, testen, proberen,
        uitproberen, uitvoeren, draaien, starten, herstarten, stoppen, bouwen, compileren,
        installeren, instellen, configureren, bijwerken, updaten, wijzigen, aanpassen,
        bewerken, verbeteren, corrigeren, oplossen, herstellen, repareren, implementeren,
        doorvoeren, toepassen, hernoemen, verplaatsen, kopiëren, verwijderen, wissen,
        aanmaken, maken, toevoegen, schrijven, opslaan, genereren, sturen, versturen,
        verzenden, boeken, reserveren, bestellen, annuleren, aanzetten, uitzetten,
        inschakelen, uitschakelen, afspelen, berekenen, uitrekenen, gebruiken, vergelijken,
        verifiëren, inplannen, beginnen, doorgaan, aan de slag, na te kijken, te zoeken""",
    subjects="ik",
    verbs="""
        kijk, bekijk, zoek, doorzoek, controleer, check, haal, vraag de, vraag het, laad,
        download, upload, open, lees, analyseer, onderzoek, test, probeer, voer, draai, start,
        herstart, stop de, stop het, bouw, compileer, installeer, stel de, stel het,
        configureer, werk de, werk het, wijzig, pas de, pas het, pas dat, bewerk, corrigeer,
        los het, los dit, los dat, herstel, repareer, implementeer, hernoem, verplaats,
        kopieer, verwijder, wis, maak een, maak de, maak het, maak er, voeg, schrijf, sla,
        genereer, stuur, verstuur, verzend, boek, reserveer, bestel, annuleer, zet, schakel,
        speel, bereken, reken, gebruik, vergelijk, verifieer, ga aan de slag, ga verder,
        ga door, begin, plan, push, commit, merge, deploy, ga na, ga even na, duik, werp,
        werp een blik, pak de, pak het, pak dat, pak dit, regel, doe een, doe dat, doe het,
        google, neem een kijkje, neem even, klik, noteer, sla op, vraag op, log in, navigeer,
        debug, loop de, zoek op, roep, verzamel, doe de, doe het licht, doe er, haal even,
        vul, geef het door""",
    forms="""
        komt eraan, ik ben ermee bezig, komt voor elkaar, doe ik meteen, ga ik meteen doen,
        ik ben aan het zoeken, ik ben aan het kijken, laten we kijken, even checken,
        even nakijken, even opzoeken""",
    starts="""
        ga ik doen, doe ik, doe ik even, komt in orde, even checken, even nakijken,
        even opzoeken, even zoeken, eerst even kijken, eerst eens kijken,
        eerst maar eens kijken, even kijken wat, even kijken of, even kijken hoe,
        nu even kijken, nieuwe poging, volgende poging""",
    trailing="""
        zoeken, bezig met, laden, ophalen, controleren, openen, lezen, uitvoeren, starten,
        versturen, berekenen, opzoeken, bijwerken, installeren, analyseren, zoekt""",
    leads="""
        ok, oké, okay, goed, prima, ja, natuurlijk, begrepen, dus, dan, nou, zo, is goed, top,
        nu, oké dan, een moment, momentje, bedankt, dank je, dank u, snap ik, begrijp ik""",
    wholes="""
        een moment, een moment geduld, een moment geduld alstublieft, een momentje, momentje,
        moment, een ogenblik, een ogenblik geduld, ogenblik geduld, een seconde, even geduld,
        even geduld alstublieft, even geduld aub, even kijken, momentje hoor, ben zo terug,
        doe ik meteen, ik ga aan de slag, momentje alsjeblieft, een momentje alsjeblieft,
        even wachten, ik begin""",
    bars="""
        als, wanneer, zodra, indien, mits, tenzij, totdat, voordat, elke, elk, iedere, altijd,
        vaak, meestal, normaal, gewoonlijk, nooit, morgen, straks als, later, voortaan,
        in het vervolg, in de toekomst, volgende week, volgende keer, vanavond, ooit, zouden,
        bijvoorbeeld, voorbeeld, stel dat, uitleggen, samenvatten, vroeger, gisteren,
        op maandag, op verzoek, desgewenst, mijn antwoorden, =, maandag, tussen de regels,
        het woord, de term, knuffel, groeten, groet, al weken, al maanden, al jaren, al dagen,
        sinds, zei hij, zei ze, schreef hij, schreef ze, eraan toe dat, werk, een huis""",
    requests="""
        laat het me weten, laat het weten, laat maar weten, laat me weten, geef me, geef mij,
        geef even, stuur me, stuur mij, vertel me, vertel het, zeg het, zeg maar, bevestig,
        je akkoord, uw akkoord, je goedkeuring, uw goedkeuring, wil je, wilt u, kun je,
        kunt u, zal ik, moet ik, heb je, heeft u, ik heb nog, ik heb je, ik heb uw""",
    bars_before="""
        dat, omdat, wat, hoe, welke, die, waar, waarom, zei, zegt, schreef, vroeg, staat, of,
        waarmee, zin""",
    bars_after="""
        uit naar, ernaar uit, ervan uit, er niet, je aan, u aan, met een voorbeeld,
        met het goede, je graag, het je uit, het u uit, het kort, op je, op uw, het woord,
        de term, je vraag, mee met, jou, niet, * niet, * * niet, * * * niet, niets, geen,
        nooit""",
    bars_inside="niet, nooit, geen, niets",
    afterthoughts="""
        dit kan even, dit duurt, dat duurt, het duurt, dit kan, ik laat het je weten,
        ik laat het u weten, ik kom erop terug, ik kom bij je terug, daarna laat ik,
        dan laat ik, even geduld, een moment, een ogenblik, bedankt voor uw geduld,
        bedankt voor je geduld, ben zo terug""",
)
