"""Plural forms of Apple: texts of a property list are translated, and what says when they are shown stays."""

import plistlib

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.errors import DataError

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
"""
RULE = "<key>NSStringFormatSpecTypeKey</key>\n<string>NSStringPluralRuleType</string>\n"
# The example of Apple's archived guide, "Stringsdict File Format".
FILES = f"""{HEAD}<dict>
\t<key>%d file(s) remaining</key>
\t<dict>
\t\t<key>NSStringLocalizedFormatKey</key>
\t\t<string>%#@files@</string>
\t\t<key>files</key>
\t\t<dict>
\t\t\t{RULE}\t\t\t<key>NSStringFormatValueTypeKey</key>
\t\t\t<string>d</string>
\t\t\t<key>one</key>
\t\t\t<string>%d file remaining</string>
\t\t\t<key>other</key>
\t\t\t<string>%d files remaining</string>
\t\t</dict>
\t</dict>
</dict>
</plist>
"""
TWO = f"""{HEAD}<dict><key>a b</key><dict><key>NSStringLocalizedFormatKey</key>
<string>%#@files@ in %2$#@all@ here</string>
<key>files</key><dict>{RULE}<key>zero</key><string>no &lt;b&gt;file&lt;/b&gt;</string><key>other</key><string>%arg files
&amp; more</string></dict><key>all</key><dict>{RULE}<key>other</key><string>%ld</string></dict></dict></dict></plist>"""
DEVICES = f"""{HEAD}<dict><key>tap</key><dict><key>NSStringDeviceSpecificRuleType</key><dict><key>mac</key>
<string>Click here</string><key>iphone</key><string>Tap here</string></dict></dict>
<key>hi</key><dict><key>NSStringVariableWidthRuleType</key><dict><key>20</key><string>Hi</string></dict></dict></dict>
</plist>"""


@each(
    "document, expected",
    [
        (FILES, {"%d file remaining": "%d fileж remainingж", "%d files remaining": "%d filesж remainingж"}),
        (
            TWO,
            {
                "%#@files@ in %2$#@all@ here": "%#@files@ж inж %2$#@all@ж hereж",
                "no &lt;b&gt;file&lt;/b&gt;": "noж &lt;b&gt;fileж&lt;/b&gt;",
                "%arg files\n&amp; more": "%argж filesж\n&amp; moreж",
            },
        ),
        (DEVICES, {"Click here": "Clickж hereж", "Tap here": "Tapж hereж", ">Hi<": ">Hiж<"}),
    ],
)
def test_texts_are_translated_and_all_else_stays(document: str, expected: dict[str, str]) -> None:
    found = translate_document(document, "stringsdict", in_order).text
    assert translate_document(document, "stringsdict", echo).text == document
    written = document
    for old, new in expected.items():
        written = written.replace(old, new)
    assert unmarked(found) == document
    assert found.replace("%dж", "%d") == written
    assert plistlib.loads(found.encode()).keys() == plistlib.loads(document.encode()).keys()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("<dict/>", "1: is not a .stringsdict, which is a property list in XML: its root element is <dict>. Name its"),
        (f"{HEAD}<dict><key>a</key>", "4: the file ends here, within <dict>. Export it again"),
        ('{ "a" = "b"; }', "1: the file ends here, without being a .stringsdict, which is a property list in XML."),
    ],
)
def test_what_is_none_is_refused(document: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(document, "stringsdict", in_order)
    assert str(caught.value).startswith(f"the document:{says}")
