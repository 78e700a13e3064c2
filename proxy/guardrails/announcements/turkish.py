"""Turkish: "Dosyaya bakıyorum.", "Hemen kontrol edeyim:", "Testleri çalıştıracağım."."""

# ruff: noqa: RUF001, RUF002 - Turkish has an i without a dot

from proxy.guardrails.announcements.cues import Cues, Script

TURKISH = Cues(
    language="tr",
    script=Script.LATIN,
    trailing="""
        aranıyor, sorgulanıyor, kontrol ediliyor, yükleniyor, çalıştırılıyor, arama, bakıyorum""",
    leads="""
        tamam, tamamdır, peki, tabii, tabii ki, elbette, anladım, evet, olur, şimdi, harika,
        teşekkürler""",
    stems="""
        bak, bir bak, kontrol ed, kontrol et, ar, ara, araştır, incel, incele, oku, aç, kapat,
        yak, söndür, çalıştır, başlat, durdur, derl, derle, kur, yükl, yükle, indir, güncell,
        güncelle, değiştir, düzelt, düzenl, düzenle, uygul, uygula, sil, oluştur, ekl, ekle,
        kaydet, kayded, gönder, rezerve ed, rezerve et, iptal ed, iptal et, ayarl, ayarla,
        hesapl, hesapla, sorgul, sorgula, çağır, test ed, test et, den, dene, çek, getir,
        listel, listele, doğrul, doğrula, analiz ed, analiz et, tıkl, tıkla, hallet, halled,
        bul, göz at, tar, tara, taşı, kopyal, kopyala, karşılaştır, ilet, hazırl, hazırla,
        not ed, çal, yenil, yenile, topl, topla, çıkar, kaldır, yapıştır, yeniden başlat,
        commit ed, push ed, deploy ed, planl, planla, bağlan, göz gezdir, sıfırl, sıfırla,
        arama yap, işl, işle, yap hemen, sorgu at, teyit ed, teyit et, kullan, ertel, ertele,
        kilitl, kilitle, ilerlet, aktar, içe aktar, dışa aktar, sırala, sıral, filtrel,
        filtrele, işaretl, işaretle, arşivl, arşivle, say, ölç, doldur, seç, bilgilendir,
        ayıkl, ayıkla, dönüştür, yeniden yükl, izol, çoğalt, birleştir, geri al, yaz, kıs,
        artır, azalt, duraklat, eşitl, eşitle, tespit ed, tespit et, buluyor, incelemeye başl,
        aramaya başl, taramaya başl, planlamaya başl, düşür, ulaş""",
    # The verb stands last, so only what a sentence ends with counts.
    suffixes="""
        ıyorum, iyorum, uyorum, üyorum, ayım, eyim, yayım, yeyim, acağım, eceğim, yacağım,
        yeceğim, ıyoruz, iyoruz, uyoruz, üyoruz, alım, elim, yalım, yelim, ıyom, iyom, uyom,
        mekteyim, maktayım, ılıyor, iliyor, ulıyor, ülüyor, nıyor, niyor, ıcam, icem, ucam,
        ücem, yım, yim""",
    endings="""
        bakıyorum, bakayım, bakacağım, bakarım, kontrol ediyorum, kontrol edeyim,
        kontrol edeceğim, arıyorum, arayayım, arayacağım, arama yapıyorum, araştırıyorum,
        araştırayım, araştıracağım, inceliyorum, inceleyeyim, inceleyeceğim, okuyorum,
        okuyayım, okuyacağım, açıyorum, açayım, açacağım, kapatıyorum, kapatayım, kapatacağım,
        yakıyorum, söndürüyorum, çalıştırıyorum, çalıştırayım, çalıştıracağım, başlatıyorum,
        başlatayım, başlatacağım, yeniden başlatıyorum, durduruyorum, durduracağım,
        derliyorum, derleyeceğim, kuruyorum, kuracağım, yüklüyorum, yükleyeyim, yükleyeceğim,
        indiriyorum, indireyim, indireceğim, güncelliyorum, güncelleyeyim, güncelleyeceğim,
        değiştiriyorum, değiştireyim, değiştireceğim, düzeltiyorum, düzelteyim, düzelteceğim,
        düzenliyorum, düzenleyeceğim, uyguluyorum, uygulayacağım, siliyorum, sileyim,
        sileceğim, oluşturuyorum, oluşturayım, oluşturacağım, ekliyorum, ekleyeyim,
        ekleyeceğim, yazıyorum, kaydediyorum, kaydedeyim, kaydedeceğim, gönderiyorum,
        göndereyim, göndereceğim, rezerve ediyorum, rezervasyon yapıyorum, iptal ediyorum,
        ayarlıyorum, ayarlayayım, ayarlayacağım, hesaplıyorum, hesaplayayım, hesaplayacağım,
        sorguluyorum, sorgulayayım, sorgulayacağım, çağırıyorum, çağıracağım, kullanıyorum,
        kullanacağım, test ediyorum, test edeyim, test edeceğim, deniyorum, deneyeyim,
        deneyeceğim, çekiyorum, çekeyim, çekeceğim, alıyorum, alayım, getiriyorum, getireyim,
        getireceğim, listeliyorum, listeleyeyim, listeleyeceğim, doğruluyorum, doğrulayacağım,
        analiz ediyorum, analiz edeyim, analiz edeceğim, giriyorum, tıklıyorum, geçiyorum,
        devam ediyorum, hallediyorum, hallederim hemen, buluyorum, bulayım, bulacağım,
        göz atıyorum, göz atayım, göz atacağım, tarıyorum, tarayayım, tarayacağım, taşıyorum,
        kopyalıyorum, karşılaştırıyorum, hemen yapıyorum, şimdi yapıyorum, yapıyorum hemen,
        işleme alıyorum, iletiyorum, bakıyorum şimdi, bakıyorum hemen, bakayım hemen,
        bakalım neler var, başlıyorum, sorgulanıyor, kontrol ediliyor, aranıyor, yükleniyor,
        çalıştırılıyor, hazırlıyorum, not ediyorum, çalıyorum, ekliyorum şimdi,
        bakıp söylüyorum, bakıp söyleyeyim, bakıp döneceğim, bakıp dönüyorum, hallederim,
        hemen hallederim, bakarım şimdi, görelim, bir görelim, göreyim, bakıp geliyorum""",
    wholes="""
        bir dakika, bir dakika lütfen, bir saniye, bir saniye lütfen, bir an, bir an lütfen,
        lütfen bekleyin, bekleyin lütfen, lütfen bekleyiniz, hemen, hemen geliyor,
        hemen bakıyorum, bi saniye, bi dakika, bir saniye bekleyin, bir dakika bekleyin,
        hemen hallediyorum, biraz bekleyin, hemen yapıyorum""",
    particles="""
        hemen, şimdi, şu an, şu anda, efendim, hemen şimdi, sizin için, senin için, bi, önce,
        'a, o zaman""",
    bars="""
        eğer, ederseniz, isterseniz, istersen, verirseniz, verirsen, gönderirseniz,
        gönderirsen, onaylarsanız, onaylarsan, yazarsanız, *rsanız, *rseniz, *rsan, *rsen,
        *ırsa, *irse, *ursa, *ürse, *dığınızda, *diğinizde, *duğunuzda, *düğünüzde, *dığında,
        *diğinde, *duğunda, *düğünde, *tığında, *tiğinde, *tuğunda, *tüğünde, *tığınızda,
        *tiğinizde, *ınca, *ince, *unca, *ünce, her, hep, her zaman, sık sık, genellikle,
        genelde, asla, hiç, yarın, ileride, bundan sonra, bundan böyle, haftaya, akşam,
        olsaydım, yerinizde, yerinde olsam, örneğin, mesela, diyelim, dün, eskiden, bazen,
        için onay, onayınızla, onayınızdan, onayından, isteğe bağlı, cevaplarımda,
        yanıtlarımda, =, pazartesi, aydır, haftadır, yıldır, dedi, demiş, yazmış, yazdı,
        satır aralarında, kelimesini, terimini, selamlar, sevgiler, parantez, örnek""",
    requests="""
        söyleyin, söyle, söyler misin, söyler misiniz, bildirin, bildir, haber verin,
        haber ver, onaylayın, onayla, paylaşın, paylaşır mısınız, verin, verir misin,
        verir misiniz, ister misiniz, ister misin, belirtin, yazın, gönderin, onayınız,
        onayın, lütfen onay, lütfen bana""",
    bars_before="diye, dedi, der, yazdı, sen, siz, düşünüyorum, hep",
    afterthoughts="""
        bu biraz, biraz zaman, biraz sürebilir, bu işlem, size haber, sonra size, sonra sana,
        size bilgi, sonucu size, sonucu sana, sabrınız için, beklediğiniz için,
        hemen dönüyorum, hemen dönerim, lütfen bekleyin, bir dakika, bir saniye, birazdan""",
)
