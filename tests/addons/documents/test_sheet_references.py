"""What repeats the texts of cells follows them: formulas, filters, rules, lists, pivot tables, and results."""

import re

from tests.addons.documents.office_files import X, archive, members, translate
from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order

_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml."
CELLS = "".join(
    f"<si><t>{text}</t></si>" for text in ("fruit", "red apples", "pears", "yes", "a\r\nb", "say &quot;x&quot;")
)
SHEET, BOOK = "xl/worksheets/sheet1.xml", "xl/workbook.xml"
RECORDS = "xl/pivotCache/pivotCacheRecords1.xml"
CACHE, PIVOT = "xl/pivotCache/pivotCacheDefinition1.xml", "xl/pivotTables/pivotTable1.xml"
SLICER, SLICER_CACHE = "xl/slicers/slicer1.xml", "xl/slicerCaches/slicerCache1.xml"


def workbook(members: dict[str, str], strings: str = CELLS) -> bytes:
    kinds = {
        **{BOOK: "sheet.main", SHEET: "worksheet", "xl/sharedStrings.xml": "sharedStrings"},
        **{CACHE: "pivotCacheDefinition", RECORDS: "pivotCacheRecords", PIVOT: "pivotTable"},
        **{"xl/tables/table1.xml": "table"},
    }
    types = {name: f"{_TYPE}{kind}+xml" for name, kind in kinds.items()}
    types |= {SLICER: "application/vnd.ms-excel.slicer+xml", SLICER_CACHE: "application/vnd.ms-excel.slicerCache+xml"}
    overrides = "".join(f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, kind in types.items())
    space = "http://schemas.openxmlformats.org/package/2006/content-types"
    return archive(
        {
            "[Content_Types].xml": f'<Types xmlns="{space}">{overrides}</Types>',
            BOOK: f"<workbook {X}><sheets/></workbook>",
            SHEET: f"<worksheet {X}><sheetData/></worksheet>",
            "xl/sharedStrings.xml": f"<sst {X}>{strings}</sst>",
            **members,
        }
    )


def followed(member: str, content: str, **others: str) -> str:
    """The content of a member, in an element of its own, when the cells are translated."""
    data = workbook({member: f"<root {X}>{content}</root>", **others})
    assert members(translate(data, "xlsx", echo)[0]) == members(data)
    found = members(translate(data, "xlsx", in_order)[0])[member].decode()
    return re.sub(r"\A<root [^<>]*>|</root>\Z", "", found)


@each(
    "formula, written",
    [
        ('IF(A1="yes",1,0)', 'IF(A1="yesж",1,0)'),
        ("COUNTIF(A:A,&quot;red apples&quot;)", 'COUNTIF(A:A,"redж applesж")'),
        ('A1="say ""x"""', 'A1="sayж ""xж"""'),
        ('A1="Yes of course"', None),
        ('IF(A1&lt;2,"yes",TEXT(A1,"pears"))', 'IF(A1&lt;2,"yesж",TEXT(A1,"pears"))'),
        ('INDIRECT("pears")&amp;"pears"', 'INDIRECT("pears")&amp;"pearsж"'),
        ("'yes \"pears\"'!A1", None),
        ('A1="yes', None),
    ],
)
def test_a_formula_compares_with_the_text_that_the_cell_has_now(formula: str, written: str | None) -> None:
    for element in ("f", "formula", "formula1"):
        expected = formula if written is None else written
        assert followed(SHEET, f"<{element}>{formula}</{element}>") == f"<{element}>{expected}</{element}>"
    name = f'<definedName name="n">{formula}</definedName>'
    assert followed(BOOK, name) == name.replace(formula, formula if written is None else written)


def test_filters_and_rules_name_the_texts_that_cells_have_now() -> None:
    rules = '<filter val="{0}"/><customFilter operator="equal" val="{1}"/><cfRule type="containsText" text="{0}"/>'
    assert followed(SHEET, rules.format("yes", "a\nb")) == rules.format("yesж", "aж\nbж")
    label = '<tableColumn id="1" name="x" totalsRowLabel="{}"/>'
    assert followed("xl/tables/table1.xml", label.format("pears")) == label.format("pearsж")


VALIDATION = (
    '<dataValidations><dataValidation type="list" {}><formula1>{}</formula1></dataValidation></dataValidations>'
)


@each(
    "formula, written",
    [
        ('"yes,pears"', '"yesж,pearsж"'),
        ('"yes, maybe"', '"yesж,maybeж"'),
        ("&quot;maybe,no&quot;", '"maybeж,noж"'),
        ("$A$1:$A$5", "$A$1:$A$5"),
        ('"1,2"', '"1,2"'),
        (f'"{"no," * 84}no"', f'"{"no," * 84}no"'),  # would be longer than the 255 characters that Excel reads
    ],
)
def test_lists_and_messages_of_cells_are_translated(formula: str, written: str) -> None:
    messages = 'promptTitle="{}" prompt="{}" errorTitle="{}" error="{}"'
    old = messages.format("A &amp; b", "Choose one", "A title of thirty-two characters", "No")
    new = messages.format("Aж &amp; bж", "Chooseж oneж", "A title of thirty-two characters", "Noж")
    assert followed(SHEET, VALIDATION.format(old, formula)) == VALIDATION.format(new, written)


def test_a_formula_has_the_texts_of_a_list() -> None:
    content = VALIDATION.format('sqref="A1"', '"high,low"') + '<f>IF(A1="high",1,2)</f>'
    assert followed(SHEET, content).endswith(
        '<formula1>"highж,lowж"</formula1></dataValidation></dataValidations><f>IF(A1="highж",1,2)</f>'
    )


def test_results_that_are_texts_are_those_of_the_cells_or_computed_again() -> None:
    cells = '<c r="A1" t="str"><f>B1</f><v>{}</v></c><c r="A2" t="str"><f>B1&amp;" x"</f>{}</c>'
    cells += '<c r="A3"><f>1+1</f><v>2</v></c>'
    other = (
        '<c r="A4" t="str"><f>[1]S!A1</f><v>from elsewhere</v></c><c r="A5" t="str"><f>_xlfn.NEW()</f><v>by it</v></c>'
    )
    data = workbook({SHEET: f"<worksheet {X}>{cells.format('pears', '<v>pears x</v>')}{other}</worksheet>"})
    found = members(translate(data, "xlsx", in_order)[0])
    assert found[SHEET].decode() == f"<worksheet {X}>{cells.format('pearsж', '')}{other}</worksheet>"
    assert b"<sheets/></workbook>" in members(data)[BOOK]
    with_name = {
        SHEET: f"<worksheet {X}>{cells}</worksheet>",
        BOOK: f"<x:workbook xmlns:x='{X[7:-1]}'><x:sheets></x:sheets></x:workbook>",
    }
    found = members(translate(workbook(with_name), "xlsx", in_order)[0])
    assert found[BOOK].endswith(b'</x:sheets><x:calcPr fullCalcOnLoad="1"/></x:workbook>')
    with_name[BOOK] = f'<workbook {X}><sheets></sheets><calcPr calcId="1"/></workbook>'
    found = members(translate(workbook(with_name), "xlsx", in_order)[0])
    assert found[BOOK].endswith(b'<calcPr fullCalcOnLoad="1" calcId="1"/></workbook>')


def test_a_pivot_table_has_the_fields_and_values_of_its_cells() -> None:
    fields = '<cacheField name="{}"><sharedItems><s v="{}"/><n v="1"/><s v="other"/></sharedItems></cacheField>'
    assert followed(CACHE, fields.format("fruit", "pears")) == fields.format("fruitж", "pearsж")
    record = '<r><x v="0"/><s v="{}"/></r>'
    assert followed(RECORDS, record.format("pears")) == record.format("pearsж")
    pivot = '<pivotField name="{0}"/><dataField name="{0}"/>'
    assert followed(PIVOT, pivot.format("fruit")) == pivot.format("fruitж")
    assert followed(SLICER, '<slicer name="fruit" caption="fruit"/>') == '<slicer name="fruit" caption="fruitж"/>'
    assert (
        followed(SLICER_CACHE, '<slicerCacheDefinition sourceName="fruit"/>')
        == '<slicerCacheDefinition sourceName="fruitж"/>'
    )


def test_a_pivot_table_whose_names_would_be_equal_or_are_in_formulas_keeps_them() -> None:
    strings = "<si><t>cat</t></si><si><t>Cat</t></si>"

    def same(texts: list[str]) -> object:
        return echo(["dog" for _ in texts])

    cache = f'<a {X}><cacheField name="cat"><sharedItems><s v="cat"/><s v="Cat"/></sharedItems></cacheField>'
    cache += '<cacheField name="Cat"/></a>'
    slicer = f'<slicerCacheDefinition {X} sourceName="cat"/>'
    data = workbook({CACHE: cache, SLICER_CACHE: slicer}, strings)
    found = members(translate(data, "xlsx", same)[0])  # type: ignore[arg-type]
    assert (found[CACHE].decode(), found[SLICER_CACHE].decode()) == (cache, slicer)
    computed = '<cacheField name="fruit"/><cacheField name="sum" formula="fruit*2"/>'
    assert followed(CACHE, computed) == computed


def test_readings_of_a_text_that_is_translated_are_left_out() -> None:
    reading = '<rPh sb="0" eb="2"><t>カ</t></rPh><phoneticPr fontId="1"/>'
    data = workbook({}, f"<si><t>cat</t>{reading}</si><si><t>12</t>{reading}</si>")
    found = members(translate(data, "xlsx", in_order)[0])["xl/sharedStrings.xml"].decode()
    assert f'<si><t>catж</t><phoneticPr fontId="1"/></si><si><t>12</t>{reading}</si>' in found


def test_a_part_is_known_by_the_ending_of_its_name() -> None:  # as System.IO.Packaging of .NET writes the workbook
    before = members(workbook({}))
    types = before["[Content_Types].xml"].decode()
    override = re.search(rf'<Override PartName="/{BOOK}" ContentType="([^"]*)"/>', types)
    assert override is not None
    default = f'<Default Extension="XML" ContentType="{override[1]}"/>'
    data = archive({**before, "[Content_Types].xml": types.replace(override[0], default)})
    assert len(translate(data, "xlsx")[1]) == 7
