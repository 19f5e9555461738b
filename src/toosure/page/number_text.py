"""Numbers as text, the same on pages and in the terminal."""


def printed(value: str | float | None, form: str = "") -> str:
    """Return a value as text: a true minus, a dash if there is none, small numbers to two digits.

    >>> printed(-0.5, "+.2f"), printed(-0.001, "+.2f"), printed(0.000189, ".4f"), printed(None)
    ('−0.50', '0.00', '0.00019', '–')
    >>> printed(-0.000048, "+.4f"), printed(0.0, "+.4f")
    ('−4.8e−05', '0.0000')
    >>> printed(541947.128, ".3f"), printed(-7537767.7, "+.2f"), printed(6.74e24, ".3f")
    ('541,947', '−7,537,768', '6.74e+24')
    >>> printed(72.25, ".1f"), printed(2.5, ".3g"), printed(2, ".3g")
    ('72.3', '2.50', '2')
    """
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "–"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"

    small = form in (".4f", "+.4f") and 0 < abs(value) < 0.001
    # Round halves up, as the scripts of the page do.
    exact = value * (1 + 1e-9) if form.endswith("f") else value
    if form.endswith("g") and 1e-3 <= abs(value) < 1e3 and value != int(value):
        form = f"#{form}"  # the same number of digits in each row of a column
    if form.endswith("f") and abs(value) >= 1e4:  # its decimals say nothing
        sign = "+" if form.startswith("+") else ""
        form = f"{sign},.0f" if abs(value) < 1e9 else f"{sign}.2e"
    text = format(exact, form.replace(".4f", ".2g") if small else form).rstrip(".")
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")
