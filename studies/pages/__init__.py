"""Writers of pages of the documentation, and the long searches behind them."""
