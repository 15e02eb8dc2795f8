"""The usage ledger: one row for every run that ended, whatever its end. ``docs/contracts/ledger.md``.

``ledger`` is what runs tell; ``spool`` is the file in which rows wait, ``sql`` the database they go to and ``memory``
its double; ``migrations`` make its tables; ``question`` is what may be asked, ``row`` what is kept.
"""
