// What a page has of tables, charts and samples comes alive when it is loaded.

startTables();
startHighlight();
startCharts();
startZooms();
startSamples();
