"""How agendas come in: judged, counted, known already, made from templates."""
