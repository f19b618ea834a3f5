"""Write the pages that follow from the tests: python -m tests.pages."""

from tests.pages import alarms_page, feature_catalogue, property_catalogue, reports

PAGES = (
    alarms_page.PAGE,
    feature_catalogue.PAGE,
    property_catalogue.PAGE,
    property_catalogue.PART,
    reports.PART,
)

if __name__ == "__main__":
    for page in PAGES:
        page.write()
